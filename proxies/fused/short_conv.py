"""The causal short convolution with SiLU and unit length behind it, in one pass over memory.

    z_t = bias + sum_j weight_j x_(t - 3 + j)        a = silu(z)        y = a / sqrt(sum over the head of a^2 + eps)

Only x is kept. The backward pass computes z again: one kernel makes the gradients of z, weight and bias, a second one
that of x. A program walks a whole sequence, so weights' gradients are summed over sequences only, in a fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _CHANNELS = 32, 64  # of a tile


class ShortConvFunction(torch.autograd.Function):
    """`(x, weight, bias, silu, head, eps) -> y`: x and y `[K, B, T, D]`, weight `[K, D, 1, 4]`, bias `[K, D]` or None.

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
        sizes, (sequences, tiles, blocks), flags = _layout(x, weight, bias, ctx.silu, ctx.head)
        grad_z, grad_x = torch.empty_like(x), torch.empty_like(x)
        parts = torch.empty(*x.shape[:2], 5, x.shape[-1], device=x.device)  # 4 taps, then the bias
        grad_y = grad_y.contiguous()
        _conv_backward[(sequences, blocks)](
            grad_y,
            x,
            weight,
            bias,
            grad_z,
            parts,
            *sizes,
            ctx.eps,
            **flags | {"num_warps": 8},  # it keeps five sums
        )
        shape = {name: flags[name] for name in ("D", "BT", "BD", "num_warps")}
        _conv_transposed[(sequences, tiles, blocks)](grad_z, weight, grad_x, *sizes, **shape)
        sums = parts.sum(1)
        grad_bias = None if bias is None else sums[:, 4].to(bias.dtype)
        return grad_x, sums[:, :4].mT.to(weight.dtype).unsqueeze(2), grad_bias, None, None, None


def _layout(
    x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool, head: int | None
) -> tuple[Any, tuple[int, int, int], Any]:
    num_replicas, batch, length, channels = x.shape
    wide = head or min(_CHANNELS, triton.next_power_of_2(channels))
    grid = (num_replicas * batch, triton.cdiv(length, _ROWS), triton.cdiv(channels, wide))
    flags: dict[str, Any] = {"BIASED": bias is not None, "SILU": silu, "UNIT": head is not None}
    flags |= {"D": channels, "BT": _ROWS, "BD": wide, "num_warps": 4}
    return (batch, length), grid, flags


@triton.jit
def _tap(weight, j: tl.constexpr, d, D: tl.constexpr):
    return tl.load(weight + d * 4 + j, mask=d < D, other=0.0).to(tl.float32)


@triton.jit
def _row(x, t, d, T, D: tl.constexpr):
    """Rows t of one sequence, zero outside of it."""
    inside = ((t >= 0) & (t < T))[:, None] & (d < D)[None, :]
    return tl.load(x + t[:, None] * D + d[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _conv_forward(
    x, weight, bias, y, B, T, eps,
    BIASED: tl.constexpr, SILU: tl.constexpr, UNIT: tl.constexpr, D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    replica = sequence // B
    x, y = x + sequence * T * D, y + sequence * T * D
    t, d = tl.program_id(1) * BT + tl.arange(0, BT), tl.program_id(2) * BD + tl.arange(0, BD)
    value = tl.zeros([BT, BD], dtype=tl.float32)
    if BIASED:
        value += tl.load(bias + replica * D + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
    for j in tl.static_range(4):
        value += _row(x, t - 3 + j, d, T, D) * _tap(weight + replica * D * 4, j, d, D)[None, :]
    if SILU:
        value *= tl.sigmoid(value)
    if UNIT:
        value *= tl.rsqrt(tl.sum(value * value, 1) + eps)[:, None]
    inside = (t < T)[:, None] & (d < D)[None, :]
    tl.store(y + t[:, None] * D + d[None, :], value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _conv_backward(
    grad_y, x, weight, bias, grad_z, parts, B, T, eps,
    BIASED: tl.constexpr, SILU: tl.constexpr, UNIT: tl.constexpr, D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    replica = sequence // B
    x, grad_y, grad_z = x + sequence * T * D, grad_y + sequence * T * D, grad_z + sequence * T * D
    weight += replica * D * 4
    if BIASED:
        bias += replica * D
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    w_0, w_1, w_2, w_3 = _tap(weight, 0, d, D), _tap(weight, 1, d, D), _tap(weight, 2, d, D), _tap(weight, 3, d, D)
    grad_0, grad_1 = tl.zeros([BT, BD], dtype=tl.float32), tl.zeros([BT, BD], dtype=tl.float32)
    grad_2, grad_3 = tl.zeros([BT, BD], dtype=tl.float32), tl.zeros([BT, BD], dtype=tl.float32)
    total = tl.zeros([BT, BD], dtype=tl.float32)
    for start in range(0, T, BT):
        t = start + tl.arange(0, BT)
        x_0, x_1 = _row(x, t - 3, d, T, D), _row(x, t - 2, d, T, D)
        x_2, x_3 = _row(x, t - 1, d, T, D), _row(x, t, d, T, D)
        z = x_0 * w_0[None, :] + x_1 * w_1[None, :] + x_2 * w_2[None, :] + x_3 * w_3[None, :]
        if BIASED:
            z += tl.load(bias + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
        grad = _row(grad_y, t, d, T, D)
        open_ = tl.sigmoid(z)
        if UNIT:
            value = z * open_ if SILU else z
            inverse = tl.rsqrt(tl.sum(value * value, 1) + eps)[:, None]
            value *= inverse
            grad = inverse * (grad - value * tl.sum(grad * value, 1)[:, None])
        if SILU:
            grad *= open_ * (1 + z * (1 - open_))
        inside = (t < T)[:, None] & (d < D)[None, :]
        tl.store(grad_z + t[:, None] * D + d[None, :], grad.to(grad_z.dtype.element_ty), mask=inside)
        grad_0 += grad * x_0
        grad_1 += grad * x_1
        grad_2 += grad * x_2
        grad_3 += grad * x_3
        total += grad
    parts += sequence * 5 * D + d
    tl.store(parts, tl.sum(grad_0, 0), mask=d < D)
    tl.store(parts + D, tl.sum(grad_1, 0), mask=d < D)
    tl.store(parts + 2 * D, tl.sum(grad_2, 0), mask=d < D)
    tl.store(parts + 3 * D, tl.sum(grad_3, 0), mask=d < D)
    tl.store(parts + 4 * D, tl.sum(total, 0), mask=d < D)


@triton.jit
def _conv_transposed(grad_z, weight, grad_x, B, T, D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):
    """x at t went into z at t .. t + 3."""
    sequence = tl.program_id(0).to(tl.int64)
    grad_z, grad_x, weight = grad_z + sequence * T * D, grad_x + sequence * T * D, weight + sequence // B * D * 4
    t, d = tl.program_id(1) * BT + tl.arange(0, BT), tl.program_id(2) * BD + tl.arange(0, BD)
    grad = tl.zeros([BT, BD], dtype=tl.float32)
    for ahead in tl.static_range(4):
        grad += _row(grad_z, t + ahead, d, T, D) * _tap(weight, 3 - ahead, d, D)[None, :]
    inside = (t < T)[:, None] & (d < D)[None, :]
    tl.store(grad_x + t[:, None] * D + d[None, :], grad.to(grad_x.dtype.element_ty), mask=inside)
