"""Root-mean-square norm in one pass over memory each way, with what stands around it: a residual sum before it, or a
SiLU gate after it.

    s = x + residual        n = s / sqrt(mean(s^2) + eps)        y = n * weight * silu(gate)    (or sigmoid)

Rows of D numbers, K replicas of them with a weight each. The gradient of the weight is summed over blocks of rows
first, so it does not depend on the order in which programs run.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 2048  # numbers a program holds at a time
_BLOCKS = 4  # of rows, one after the other, in a program of the backward pass


class RMSNormFunction(torch.autograd.Function):
    """`(x, weight, residual, gate, silu, eps) -> (y, s)`; s is x itself without a residual.

    x, residual, gate and y `[K, ..., D]`; weight `[K, D]`. Residual and gate may be None. The gate is
    opened by SiLU or by a sigmoid.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, residual: Tensor | None, gate: Tensor | None, silu: bool, eps: float
    ) -> tuple[Tensor, Tensor]:
        x, weight = x.contiguous(), weight.contiguous()
        residual, gate = (None if y is None else y.contiguous() for y in (residual, gate))
        y, total = torch.empty_like(x), x if residual is None else torch.empty_like(x)
        size, rows, grid, shape = _layout(x, 1)
        _norm_forward[grid](x, residual, gate, weight, y, total, rows, eps,
                       ADD=residual is not None, GATED=gate is not None, SILU=silu, D=size, **shape)  # fmt: skip
        ctx.save_for_backward(total, weight, gate)
        ctx.silu, ctx.eps, ctx.added = silu, eps, residual is not None
        if residual is None:
            ctx.mark_non_differentiable(total)
        return y, total

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor, grad_total: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight, gate = ctx.saved_tensors
        grad_y = grad_y.contiguous()
        grad_total = grad_total.contiguous() if ctx.added and grad_total is not None else None
        size, rows, grid, shape = _layout(total, _BLOCKS)
        grad_x, grad_gate = torch.empty_like(total), None if gate is None else torch.empty_like(gate)
        parts = torch.empty(grid[1], grid[0], size, device=total.device)
        flags = {"ADD": grad_total is not None, "GATED": gate is not None, "SILU": ctx.silu}
        _norm_backward[grid](grad_y, grad_total, total, gate, weight, grad_x, grad_gate, parts, rows, ctx.eps,
                        D=size, BLOCKS=_BLOCKS, **flags, **shape)  # fmt: skip
        return grad_x, parts.sum(1), grad_x if ctx.added else None, grad_gate, None, None


def _layout(x: Tensor, blocks: int) -> tuple[int, int, tuple[int, int], dict[str, int]]:
    """Row size, rows a replica, grid (blocks of rows, replicas) and the tile."""
    size, rows = x.shape[-1], x[0].numel() // x.shape[-1]
    columns = triton.next_power_of_2(size)
    tall = max(1, _TILE // columns)
    return size, rows, (triton.cdiv(rows, tall * blocks), len(x)), {"BR": tall, "BD": columns, "num_warps": 4}


@triton.jit
def _norm_forward(
    x, residual, gate, weight, y, total, rows, eps,
    ADD: tl.constexpr, GATED: tl.constexpr, SILU: tl.constexpr, D: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(1).to(tl.int64)
    row, column = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BD)
    inside = (row < rows)[:, None] & (column < D)[None, :]
    at = (replica * rows + row)[:, None] * D + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)
        tl.store(total + at, rounded, mask=inside)
        value = rounded.to(tl.float32)
    scale = tl.load(weight + replica * D + column, mask=column < D, other=0.0).to(tl.float32)
    value *= tl.rsqrt(tl.sum(value * value, 1) / D + eps)[:, None] * scale[None, :]
    if GATED:
        logits = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
        value *= tl.sigmoid(logits) * (logits if SILU else 1.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _norm_backward(
    grad_y, grad_total, total, gate, weight, grad_x, grad_gate, parts, rows, eps,
    ADD: tl.constexpr, GATED: tl.constexpr, SILU: tl.constexpr, D: tl.constexpr, BLOCKS: tl.constexpr,
    BR: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, BD)
    scale = tl.load(weight + replica * D + column, mask=column < D, other=0.0).to(tl.float32)
    grad_scale = tl.zeros([BD], dtype=tl.float32)
    for block in range(BLOCKS):
        row = (tl.program_id(0) * BLOCKS + block) * BR + tl.arange(0, BR)
        inside = (row < rows)[:, None] & (column < D)[None, :]
        at = (replica * rows + row)[:, None] * D + column[None, :]
        value = tl.load(total + at, mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(grad_y + at, mask=inside, other=0.0).to(tl.float32)
        inverse = tl.rsqrt(tl.sum(value * value, 1) / D + eps)[:, None]
        normal = value * inverse
        if GATED:
            logits = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
            open_ = tl.sigmoid(logits)
            slope = open_ * (1 + logits * (1 - open_)) if SILU else open_ * (1 - open_)
            grad_logits = grad * normal * scale[None, :] * slope
            tl.store(grad_gate + at, grad_logits.to(grad_gate.dtype.element_ty), mask=inside)
            grad *= open_ * (logits if SILU else 1.0)
        grad_scale += tl.sum(grad * normal, 0)
        grad *= scale[None, :]
        grad = inverse * (grad - normal * (tl.sum(grad * normal, 1) / D)[:, None])
        if ADD:
            grad += tl.load(grad_total + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(grad_x + at, grad.to(grad_x.dtype.element_ty), mask=inside)
    at = (replica * tl.num_programs(0) + tl.program_id(0)) * D + column
    tl.store(parts + at, grad_scale, mask=column < D)
