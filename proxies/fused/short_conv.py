"""The causal short convolution with SiLU and unit length behind it, in one pass over memory each way.

    z_t = bias + sum_j weight_j x_(t - W + 1 + j)        a = silu(z)        y = a / sqrt(sum over the head of a^2 + eps)

Only x is kept: the backward pass computes z again, for a row and the W - 1 rows after it, from tiles that are in cache.
The gradient of the weight is summed over tiles first, so it does not depend on the order in which programs run.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _CHANNELS = 32, 64  # of a tile


class ShortConvFunction(torch.autograd.Function):
    """`(x, weight, bias, silu, head, eps) -> y`: x and y `[K, B, T, D]`, weight `[K, D, 1, W]`, bias `[K, D]` or None.

    `head` is the size of the heads to bring to unit length, a power of two that divides D, or None.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, head: int | None, eps: float
    ) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        y = torch.empty_like(x)
        sizes, grid, flags = _layout(x, weight, bias, silu, head)
        _conv_forward[grid](x, weight, bias, y, *sizes, eps, **flags)
        ctx.save_for_backward(x, weight, bias)
        ctx.silu, ctx.head, ctx.eps = silu, head, eps
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        sizes, grid, flags = _layout(x, weight, bias, ctx.silu, ctx.head)
        grad_x = torch.empty_like(x)
        taps = weight.shape[-1]
        parts = torch.empty(len(x), x.shape[1] * grid[1], x.shape[-1], taps + 1, device=x.device)  # bias last
        _conv_backward[grid](grad_y.contiguous(), x, weight, bias, grad_x, parts, *sizes, ctx.eps, **flags)
        sums = parts.sum(1)
        grad_bias = None if bias is None else sums[..., taps].to(bias.dtype)
        return grad_x, sums[..., :taps].to(weight.dtype).view_as(weight), grad_bias, None, None, None


def _layout(
    x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, head: int | None
) -> tuple[Any, tuple[int, int, int], Any]:
    num_replicas, batch, length, channels = x.shape
    wide = head or min(_CHANNELS, triton.next_power_of_2(channels))
    grid = (num_replicas * batch, triton.cdiv(length, _ROWS), triton.cdiv(channels, wide))
    flags: dict[str, Any] = {"BIASED": bias is not None, "SILU": silu, "UNIT": head is not None}
    flags |= {"W": weight.shape[-1], "BT": _ROWS, "BD": wide, "num_warps": 4}
    return (batch, length, channels), grid, flags


@triton.jit
def _mixed(
    x, weight, bias, first, t, d, T, D, BIASED: tl.constexpr, W: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr
):
    """z at rows t of the sequence that starts at row `first`."""
    z = tl.zeros([BT, BD], dtype=tl.float32)
    if BIASED:
        z += tl.load(bias + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
    for j in tl.static_range(W):
        back = t - (W - 1) + j
        inside = ((back >= 0) & (back < T))[:, None] & (d < D)[None, :]
        tap = tl.load(weight + d * W + j, mask=d < D, other=0.0).to(tl.float32)
        z += tl.load(x + (first + back)[:, None] * D + d[None, :], mask=inside, other=0.0).to(tl.float32) * tap[None, :]
    return z


@triton.jit
def _conv_forward(
    x, weight, bias, y, B, T, D, eps,
    BIASED: tl.constexpr, SILU: tl.constexpr, UNIT: tl.constexpr, W: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    t, d = tl.program_id(1) * BT + tl.arange(0, BT), tl.program_id(2) * BD + tl.arange(0, BD)
    replica = sequence // B
    if BIASED:
        bias += replica * D
    value = _mixed(x, weight + replica * D * W, bias, sequence * T, t, d, T, D, BIASED, W, BT, BD)
    if SILU:
        value *= tl.sigmoid(value)
    if UNIT:
        value *= tl.rsqrt(tl.sum(value * value, 1) + eps)[:, None]
    inside = (t < T)[:, None] & (d < D)[None, :]
    tl.store(y + (sequence * T + t)[:, None] * D + d[None, :], value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _conv_backward(
    grad_y, x, weight, bias, grad_x, parts, B, T, D, eps,
    BIASED: tl.constexpr, SILU: tl.constexpr, UNIT: tl.constexpr, W: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    t, d = tl.program_id(1) * BT + tl.arange(0, BT), tl.program_id(2) * BD + tl.arange(0, BD)
    weight += sequence // B * D * W
    if BIASED:
        bias += sequence // B * D
    first = sequence * T
    total = tl.zeros([BT, BD], dtype=tl.float32)
    for ahead in tl.static_range(W):
        row = t + ahead
        z = _mixed(x, weight, bias, first, row, d, T, D, BIASED, W, BT, BD)
        inside = (row < T)[:, None] & (d < D)[None, :]
        at = (first + row)[:, None] * D + d[None, :]
        grad = tl.load(grad_y + at, mask=inside, other=0.0).to(tl.float32)
        open_ = tl.sigmoid(z)
        if UNIT:
            value = z * open_ if SILU else z
            inverse = tl.rsqrt(tl.sum(value * value, 1) + eps)[:, None]
            value *= inverse
            grad = inverse * (grad - value * tl.sum(grad * value, 1)[:, None])
        if SILU:
            grad *= open_ * (1 + z * (1 - open_))
        tap = tl.load(weight + d * W + (W - 1 - ahead), mask=d < D, other=0.0).to(tl.float32)
        total += grad * tap[None, :]
        if ahead == 0:
            part = parts + ((sequence * tl.num_programs(1) + tl.program_id(1)) * D + d) * (W + 1)
            if BIASED:
                tl.store(part + W, tl.sum(grad, 0), mask=d < D)
            for j in tl.static_range(W):
                back = t - (W - 1) + j
                seen = ((back >= 0) & (back < T))[:, None] & (d < D)[None, :]
                value = tl.load(x + (first + back)[:, None] * D + d[None, :], mask=seen, other=0.0).to(tl.float32)
                tl.store(part + j, tl.sum(grad * value, 0), mask=d < D)
    inside = (t < T)[:, None] & (d < D)[None, :]
    tl.store(grad_x + (first + t)[:, None] * D + d[None, :], total.to(grad_x.dtype.element_ty), mask=inside)
