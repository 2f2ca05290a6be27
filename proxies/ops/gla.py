"""Gated linear attention: a decay for each key channel (GLA, HGRN-2).

    S_t = diag(exp(g_t)) S_(t-1) + k_t v_t^T        o_t = S_t^T q_t / sqrt(d_k)

Shapes: q, k, g `[B, T, H, d_k]`; v `[B, T, H, d_v]`; o as v.
"""

import torch
from torch import Tensor

from proxies.ops import kernels
from proxies.ops.chunks import SMALLEST_LOG_DECAY, entering_states, from_chunks, to_chunks

CHUNK = 64  # a power of two: a block can be halved down to single steps
LARGEST_SPAN = 80.0  # exp(80) is still a float32


def gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """fla's `chunk_gla`, in the form that suits the device."""
    return kernels.run("gla", gla_chunked, q=q, k=k, v=v, g=g)


def gla_recurrence(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """One step after the other."""
    state = k.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        state = g[:, t].exp()[..., None] * state + k[:, t, :, :, None] * v[:, t, :, None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t] * q.shape[-1] ** -0.5))
    return torch.stack(outputs, dim=1)


def gla_chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """Inside a chunk a masked product of all pairs; between chunks one state."""
    length = q.shape[1]
    size = min(CHUNK, 1 << (length - 1).bit_length())
    q, k, v, g = (to_chunks(x, size) for x in (q * q.shape[-1] ** -0.5, k, v, g.clamp(min=SMALLEST_LOG_DECAY)))
    sums = g.cumsum(-2)
    output = _within(q, k, v, sums)
    if len(q) > 1:
        last = sums[..., -1:, :]
        states = entering_states((k * (last - sums).exp()).mT @ v, last.exp().mT)
        output = output + (q * sums.exp()) @ states
    return from_chunks(output, length)


def _within(q: Tensor, k: Tensor, v: Tensor, sums: Tensor) -> Tensor:
    """What the steps of a block `[..., C, d]` read from each other; `sums` are log decays from the block's start.

    The decay from j to i splits into two factors around the middle of the block's range, so that one product serves
    all pairs. Where a factor would leave float32, the block is halved: the two halves meet at their border, which
    makes both factors at most 1, and each half is a smaller block. On a GPU, where asking would wait
    for it, every block is.
    """
    size = q.shape[-2]
    first, last = sums[..., :1, :].detach(), sums[..., -1:, :].detach()
    if size == 1 or (not sums.is_cuda and float((first - last).max()) <= LARGEST_SPAN):
        middle = (first + last) / 2
        return ((q * (sums - middle).exp()) @ (k * (middle - sums).exp()).mT).tril() @ v

    q, k, v, sums = (x.unflatten(-2, (2, size // 2)) for x in (q, k, v, sums))
    (k_early, _), (v_early, _), (_, q_late) = (x.unbind(-3) for x in (k, v, q))
    sums_early, sums_late = sums.unbind(-3)
    border = sums_early[..., -1:, :]
    across = (q_late * (sums_late - border).exp()) @ (k_early * (border - sums_early).exp()).mT @ v_early
    early, late = _within(q, k, v, sums).unbind(-3)
    return torch.cat([early, late + across], dim=-2)
