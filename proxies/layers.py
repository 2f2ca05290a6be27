"""The parts every model is made of, each stacked over replicas: parameters and activations carry a leading axis K.

Parameters are named and shaped as fla's, K aside, and start as fla's whole models start (`initializer_range` 0.02,
convolutions included). On a GPU activations are bfloat16 and the heavy parts are Triton kernels (`fused`), imported at
first use. Shapes: K replicas, B batch, T time, D width, H heads.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from proxies.fusion import fused

INIT_STD = 0.02
NORM_EPS = 1e-6
UNIT_EPS = 1e-6  # of fla's l2norm
ROPE_THETA = 10000.0
GPU_DTYPE = torch.bfloat16  # of activations and matrices on a GPU; their masters, vectors and states are float32


class Stacked(nn.Module):
    """A module whose parameters carry a leading replica axis. `start` draws one replica's from its generator."""

    def start(self, replica: int, generator: Generator, std: float) -> None:
        for name, parameter in self.named_parameters(recurse=False):
            if name == "weight":
                nn.init.normal_(parameter.data[replica], std=std, generator=generator)


class Linear(Stacked):
    """`[K, B, T, in]` to `[K, B, T, out]`, each replica through its own matrix."""

    def __init__(self, num_replicas: int, in_dim: int, out_dim: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_replicas, out_dim, in_dim))
        self.bias = nn.Parameter(torch.zeros(num_replicas, out_dim)) if bias else None

    def forward(self, x_KBTD: Tensor) -> Tensor:
        if self.bias is None:
            return project(x_KBTD, [self.weight])[0]
        if x_KBTD.is_cuda:
            return _Affine.apply(x_KBTD, self.weight, self.bias)
        return torch.baddbmm(self.bias[:, None], x_KBTD.flatten(1, -2), self.weight.mT).view(*x_KBTD.shape[:-1], -1)


def project(x_KBTD: Tensor, weights: Iterable[Tensor]) -> list[Tensor]:
    """One input through several matrices `[K, out, in]`: `[K, B, T, out]` each.

    On a GPU they share one backward pass, and those with few columns one matrix product.
    """
    if not x_KBTD.is_cuda:
        rows = x_KBTD.flatten(1, -2)
        return [torch.bmm(rows, weight.mT).view(*x_KBTD.shape[:-1], -1) for weight in weights]
    weights = list(weights)
    wide = [weight for weight in weights if weight.shape[1] >= _NARROW]
    narrow = [weight for weight in weights if weight.shape[1] < _NARROW]
    if not narrow:
        return list(_FanOut.apply(x_KBTD, *wide))
    together = torch.cat(narrow, 1)
    spare = -together.shape[1] % _NARROW
    *outputs, last = _FanOut.apply(x_KBTD, *wide, F.pad(together, (0, 0, 0, spare)))
    pieces = iter(last.split([*(weight.shape[1] for weight in narrow), spare], -1))
    rest = iter(outputs)
    return [next(pieces if weight.shape[1] < _NARROW else rest) for weight in weights]


_NARROW = 16  # columns below which the tensor cores of a GPU are not fed
_FILLED, _FEWEST_ROWS = 128, 256  # tiles that fill a GPU; rows worth a tile


class _FanOut(torch.autograd.Function):
    """`x` times each weight, transposed. The gradient of x is added up inside the matrix products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        rows = x.flatten(1, -2)
        ctx.save_for_backward(rows, *weights)
        ctx.shape = x.shape
        return tuple(torch.bmm(rows, weight.mT).view(*x.shape[:-1], -1) for weight in weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        rows, *weights = ctx.saved_tensors
        gradients = tuple(gradient.flatten(1, -2) for gradient in gradients)
        total = torch.bmm(gradients[0], weights[0])
        for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
            total.baddbmm_(gradient, weight)
        return total.view(ctx.shape), *(_outer(gradient, rows) for gradient in gradients)


class _Affine(torch.autograd.Function):
    """`x` times the weight, transposed, and a bias `[K, out]`. Both gradients are cut along N to fill the GPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows = x.flatten(1, -2)
        ctx.save_for_backward(rows, weight)
        ctx.shape, ctx.bias_dtype = x.shape, bias.dtype
        return torch.baddbmm(bias[:, None].to(x.dtype), rows, weight.mT).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, weight = ctx.saved_tensors
        gradient = gradient.flatten(1, -2)
        parts = gradient.unflatten(1, (_cuts(gradient.shape[1], 1), -1)).sum(2, dtype=torch.float32)
        return (gradient @ weight).view(ctx.shape), _outer(gradient, rows), parts.sum(1).to(ctx.bias_dtype)


def _outer(y: Tensor, x: Tensor) -> Tensor:
    """`y^T x` for each replica, `[K, N, out]` and `[K, N, in]` to `[K, out, in]`, cut along N to fill the GPU."""
    num_replicas, rows, _ = y.shape
    cuts = _cuts(rows, num_replicas * -(-y.shape[2] // 64) * -(-x.shape[2] // 64))
    if cuts == 1:
        return torch.bmm(y.mT, x)
    y, x = (z.reshape(num_replicas * cuts, rows // cuts, -1) for z in (y, x))
    return torch.bmm(y.mT, x).unflatten(0, (num_replicas, cuts)).sum(1)


def _cuts(rows: int, tiles: int) -> int:
    """Into how many equal parts to cut `rows` so that `tiles` of each fill the GPU."""
    cuts = 1
    while tiles * cuts < _FILLED and rows % (2 * cuts) == 0 and rows // (2 * cuts) >= _FEWEST_ROWS:
        cuts *= 2
    return cuts


class Embedding(Stacked):
    """Tokens `[K, B, T]` to vectors `[K, B, T, D]`."""

    def __init__(self, num_replicas: int, vocab: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_replicas, vocab, width))

    def forward(self, tokens_KBT: Tensor) -> Tensor:
        num_replicas, vocab, _ = self.weight.shape
        first_row = torch.arange(0, num_replicas * vocab, vocab, device=tokens_KBT.device)
        return F.embedding(tokens_KBT + first_row[:, None, None], self.weight.flatten(0, 1))


class RMSNorm(Stacked):
    """Root-mean-square norm over the last axis of `[K, ..., dim]`."""

    def __init__(self, num_replicas: int, dim: int, eps: float = NORM_EPS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_replicas, dim))
        self.eps = eps

    def start(self, replica: int, generator: Generator, std: float) -> None:
        """Norms start at one."""

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            return self._kernel(x)[0]
        return _Normalise.apply(x, x.shape[-1], self.eps) * self._weight_for(x)

    def after_sum(self, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        """`x + residual`, and its norm."""
        if residual is None:
            return x, self(x)
        if x.is_cuda:
            y, total = self._kernel(x, residual)
            return total, y
        total = x + residual
        return total, self(total)

    def _weight_for(self, x: Tensor) -> Tensor:
        return self.weight.view(len(x), *[1] * (x.dim() - 2), -1)

    def _kernel(self, x: Tensor, residual: Tensor | None = None, gate: Tensor | None = None, silu: bool = True) -> Any:
        from proxies.fused.rms_norm import RMSNormFunction

        return RMSNormFunction.apply(x, self.weight, residual, gate, silu, self.eps)


class GatedRMSNorm(RMSNorm):
    """A norm over each head of `[K, B, T, H*dim]`, times the SiLU or sigmoid of a gate of the same shape."""

    def __init__(self, num_replicas: int, dim: int, eps: float = NORM_EPS, *, silu: bool = True) -> None:
        super().__init__(num_replicas, dim, eps)
        self.silu = silu

    def forward(self, x_KBTD: Tensor, gate_KBTD: Tensor) -> Tensor:  # type: ignore[override]
        heads, gate = (y.unflatten(-1, (-1, self.weight.shape[-1])) for y in (x_KBTD, gate_KBTD))
        if x_KBTD.is_cuda:
            return self._kernel(heads, gate=gate, silu=self.silu)[0].flatten(-2)
        normal = _Normalise.apply(heads, heads.shape[-1], self.eps)
        open_gate = F.silu(gate) if self.silu else gate.sigmoid()
        return (normal * self._weight_for(heads) * open_gate).flatten(-2)


class ShortConv(Stacked):
    """A causal convolution of width 4 on each channel, fla's ShortConvolution. A bias starts at zero."""

    def __init__(self, num_replicas: int, dim: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_replicas, dim, 1, 4))
        self.bias = nn.Parameter(torch.zeros(num_replicas, dim)) if bias else None

    def forward(self, x_KBTD: Tensor, *, silu: bool = False, unit: int | None = None) -> Tensor:
        """With SiLU behind it, and heads of size `unit` brought to unit length, if asked."""
        if x_KBTD.is_cuda and (unit is None or unit & (unit - 1) == 0):
            from proxies.fused.short_conv import ShortConvFunction

            return ShortConvFunction.apply(x_KBTD, self.weight, self.bias, silu, unit, UNIT_EPS)
        if x_KBTD.is_cuda:
            return activate(self(x_KBTD, silu=silu), silu=False, unit=unit)
        y = _CausalConv.apply(x_KBTD, self.weight)
        return activate(y if self.bias is None else y + self.bias[:, None, None], silu=silu, unit=unit)


def activate(x_KBTD: Tensor, *, silu: bool = False, unit: int | None = None) -> Tensor:
    """SiLU, and then heads of size `unit` brought to unit length as by fla's l2norm, if asked."""
    if unit is None:
        return _silu(x_KBTD) if silu else x_KBTD
    if x_KBTD.is_cuda:
        return _unit_length(x_KBTD, silu, unit)
    heads = (F.silu(x_KBTD) if silu else x_KBTD).unflatten(-1, (-1, unit))
    return _Normalise.apply(heads, 1, UNIT_EPS).flatten(-2)


class SwiGLU(nn.Module):
    """The MLP of every block."""

    def __init__(self, num_replicas: int, width: int, mlp_dim: int) -> None:
        super().__init__()
        self.gate_proj = Linear(num_replicas, width, mlp_dim)
        self.up_proj = Linear(num_replicas, width, mlp_dim)
        self.down_proj = Linear(num_replicas, mlp_dim, width)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        return self.down_proj(_silu_times(*project(x_KBTD, [self.gate_proj.weight, self.up_proj.weight])))


def rotate(x_BTHd: Tensor) -> Tensor:
    """Rotary position embedding, halves rotated against each other (not interleaved)."""
    return _rotate(x_BTHd, *_rotary_table(x_BTHd.shape[1], x_BTHd.shape[-1], x_BTHd.device, x_BTHd.dtype))


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # a table first made while evaluating must serve training too
def _rotary_table(length: int, dim: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    frequencies = ROPE_THETA ** -(torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), frequencies)[:, None]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1).to(dtype), torch.cat([-sin, sin], -1).to(dtype)


@fused
def _rotate(x_BTHd: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.addcmul(x_BTHd * cos, x_BTHd.roll(x_BTHd.shape[-1] // 2, -1), sin)


@fused
def _silu_times(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


@fused
def _silu(x: Tensor) -> Tensor:
    return F.silu(x)


@fused
def _unit_length(x: Tensor, silu: bool, head: int) -> Tensor:
    wide = x.float().unflatten(-1, (-1, head))
    wide = F.silu(wide) if silu else wide
    return (wide * (wide.square().sum(-1, keepdim=True) + UNIT_EPS).rsqrt()).to(x.dtype).flatten(-2)


class _Normalise(torch.autograd.Function):
    """`x / sqrt(sum(x^2) / divisor + eps)`, in a third of the memory passes autograd would take."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, divisor: int, eps: float) -> Tensor:
        inverse = torch.linalg.vecdot(x, x).unsqueeze(-1).div_(divisor).add_(eps).rsqrt_()
        normal = x * inverse
        ctx.save_for_backward(normal, inverse)
        ctx.divisor = divisor
        return normal

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        normal, inverse = ctx.saved_tensors
        along = torch.linalg.vecdot(grad, normal).unsqueeze(-1).div_(-ctx.divisor)
        return torch.addcmul(grad, normal, along).mul_(inverse), None, None


class _CausalConv(torch.autograd.Function):
    """A sum of shifted copies, added up in place. Tap j of n looks n - 1 - j steps back."""

    @staticmethod
    def forward(ctx: Any, x_KBTD: Tensor, weight_KD1W: Tensor) -> Tensor:
        *taps, now = weight_KD1W.permute(3, 0, 2, 1).unsqueeze(-3).unbind(0)
        y = x_KBTD * now
        for back, tap in enumerate(reversed(taps), start=1):
            y[:, :, back:].addcmul_(x_KBTD[:, :, :-back], tap)
        ctx.save_for_backward(x_KBTD, weight_KD1W)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        *taps, now = weight.permute(3, 0, 2, 1).unsqueeze(-3).unbind(0)
        grad_x = grad * now
        grad_taps = [(grad * x).sum((1, 2))]
        for back, tap in enumerate(reversed(taps), start=1):
            grad_x[:, :, :-back].addcmul_(grad[:, :, back:], tap)
            grad_taps.append((grad[:, :, back:] * x[:, :, :-back]).sum((1, 2)))
        return grad_x, torch.stack(grad_taps[::-1], dim=-1).unsqueeze(2)
