"""The parts every model is made of, each stacked over replicas: parameters and activations carry a leading axis K.

Parameters are named and shaped as fla's, K aside, and start as fla's whole models start (`initializer_range` 0.02,
convolutions included). Shapes: K replicas, B batch, T time, D width, H heads.
"""

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from proxies.fusion import fused

INIT_STD = 0.02
NORM_EPS = 1e-6
ROPE_THETA = 10000.0
GPU_DTYPE = torch.bfloat16  # of activations on a GPU; parameters and states are float32


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
        rows = x_KBTD.flatten(1, -2)
        if self.bias is None:
            y = torch.bmm(rows, self.weight.mT)
        else:
            y = torch.baddbmm(self.bias[:, None], rows, self.weight.mT)
        return y.view(*x_KBTD.shape[:-1], -1)


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
        weight = self.weight.view(len(x), *[1] * (x.dim() - 2), -1)
        return _rms_norm(x, weight, self.eps)


class GatedRMSNorm(RMSNorm):
    """A norm over each head of `[K, B, T, H*dim]`, times the SiLU of a gate of the same shape."""

    def forward(self, x_KBTD: Tensor, gate_KBTD: Tensor) -> Tensor:  # type: ignore[override]
        heads, gate = (y.unflatten(-1, (-1, self.weight.shape[-1])) for y in (x_KBTD, gate_KBTD))
        return _gated_rms_norm(heads, gate, self.weight[:, None, None, None], self.eps).view_as(gate_KBTD)


class ShortConv(Stacked):
    """A causal convolution of width 4 on each channel, with SiLU behind it if asked: fla's ShortConvolution."""

    def __init__(self, num_replicas: int, dim: int, taps: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_replicas, dim, 1, taps))

    def forward(self, x_KBTD: Tensor, *, silu: bool = False) -> Tensor:
        return _short_conv(x_KBTD, self.weight, silu)


class SwiGLU(nn.Module):
    """The MLP of every block."""

    def __init__(self, num_replicas: int, width: int, mlp_dim: int) -> None:
        super().__init__()
        self.gate_proj = Linear(num_replicas, width, mlp_dim)
        self.up_proj = Linear(num_replicas, width, mlp_dim)
        self.down_proj = Linear(num_replicas, mlp_dim, width)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        return self.down_proj(_silu_times(self.gate_proj(x_KBTD), self.up_proj(x_KBTD)))


def unit_length(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Vectors of the last axis at length 1, as fla's l2norm."""
    return _normalise(x, 1, eps)


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
def _normalise(x: Tensor, divisor: int, eps: float) -> Tensor:
    if not x.is_cuda:
        return _Normalise.apply(x, divisor, eps)
    return _normal(x, divisor, eps).to(x.dtype)


@fused
def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if not x.is_cuda:
        return _Normalise.apply(x, x.shape[-1], eps) * weight
    return (_normal(x, x.shape[-1], eps) * weight).to(GPU_DTYPE)


@fused
def _gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    if not x.is_cuda:
        return _Normalise.apply(x, x.shape[-1], eps) * weight * F.silu(gate)
    return (_normal(x, x.shape[-1], eps) * weight * F.silu(gate.float())).to(GPU_DTYPE)


def _normal(x: Tensor, divisor: int, eps: float) -> Tensor:
    """`_Normalise` in float32, for a compiler to differentiate and fuse."""
    wide = x.float()
    return wide * (wide.square().sum(-1, keepdim=True) / divisor + eps).rsqrt()


@fused
def _short_conv(x_KBTD: Tensor, weight_KD1W: Tensor, silu: bool) -> Tensor:
    if x_KBTD.is_cuda:
        taps = weight_KD1W.permute(3, 0, 2, 1).unsqueeze(-3).unbind(0)
        length, padded = x_KBTD.shape[2], F.pad(x_KBTD, (0, 0, len(taps) - 1, 0))
        shifted = (padded[:, :, j : j + length].float() * tap for j, tap in enumerate(taps))
        y: Tensor = sum(shifted)  # type: ignore[assignment]
    else:
        y = _CausalConv.apply(x_KBTD, weight_KD1W)
    return (F.silu(y) if silu else y).to(x_KBTD.dtype)


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
