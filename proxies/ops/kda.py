"""The gated delta rule with a decay for each key channel (Kimi Delta Attention).

    S_t = diag(exp(g_t)) S_(t-1) + b_t k_t (v_t - (diag(exp(g_t)) S_(t-1))^T k_t)^T        o_t = S_t^T q_t / sqrt(d_k)

Shapes: q, k, g `[B, T, H, d_k]`, k of length at most 1; v `[B, T, H, d_v]`; beta `[B, T, H]`; o as v.
The chunked form is that of the gated delta rule, with decays inside the products of keys (arXiv 2510.26692).
"""

import torch
from torch import Tensor

from proxies.ops import kernels
from proxies.ops.chunks import from_chunks, to_chunks
from proxies.ops.gated_delta import solve, write

CHUNK = 32  # a power of two, and so is BLOCK
BLOCK = 4
SMALLEST_LOG_DECAY = -40.0  # exp(-40) is zero beside anything else; half of a block's 3 steps stays far from overflow


def kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """fla's `chunk_kda`, in the form that suits the device."""
    return kernels.run("kda", kda_chunked, q=q, k=k, v=v, g=g, beta=beta)


def kda_recurrence(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """One step after the other."""
    state = k.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        state = g[:, t].exp()[..., None] * state
        known = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        written = beta[:, t, :, None] * (v[:, t] - known)
        state = state + k[:, t, :, :, None] * written[..., None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t] * q.shape[-1] ** -0.5))
    return torch.stack(outputs, dim=1)


def kda_chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """As `gated_delta_chunked`, where `exp(G_i - G_j)` is a factor of each channel of `k_i.k_j` and of `q_i.k_j`."""
    length = q.shape[1]
    size = max(BLOCK, min(CHUNK, 1 << (length - 1).bit_length()))
    q, k, v, g, beta = (
        to_chunks(x, size) for x in (q * q.shape[-1] ** -0.5, k, v, g.clamp(min=SMALLEST_LOG_DECAY), beta[..., None])
    )
    sums = g.cumsum(-2)
    scores, system = _decayed_products((q, k * beta), k, sums)
    inverse = solve(system, torch.eye(size, dtype=q.dtype, device=q.device).expand_as(system))
    kept, last = sums.exp(), sums[..., -1:, :]
    written, states = write(inverse @ (v * beta), inverse @ (k * beta * kept), k * (last - sums).exp(), last.exp().mT)
    return from_chunks(scores @ written + (q * kept) @ states, length)


def _decayed_products(rows: tuple[Tensor, ...], k: Tensor, sums: Tensor) -> list[Tensor]:
    """For each of `rows`, the products `sum_d rows_id k_jd exp(sums_id - sums_jd)` of steps j <= i, else zero.

    Around the middle of a short block's decays the exponential splits into two factors that float32 can hold. Two
    neighbours of any size meet at their border, which makes both factors at most 1.
    """
    short = sums.unflatten(-2, (-1, BLOCK))
    middle = ((short[..., :1, :] + short[..., -1:, :]) / 2).detach()
    into, columns = (short - middle).exp(), (k.unflatten(-2, (-1, BLOCK)) * (middle - short).exp()).mT
    products = [((row.unflatten(-2, (-1, BLOCK)) * into) @ columns).tril() for row in rows]
    half = BLOCK
    while half < k.shape[-2]:
        (k_early, _), (early, late) = (x.unflatten(-2, (-1, 2, half)).unbind(-3) for x in (k, sums))
        border = early[..., -1:, :]
        into, columns = (late - border).exp(), (k_early * (border - early).exp()).mT
        for index, row in enumerate(rows):
            across = (row.unflatten(-2, (-1, 2, half))[..., 1, :, :] * into) @ columns
            before, after = products[index].unflatten(-3, (-1, 2)).unbind(-3)
            upper = torch.cat([before, torch.zeros_like(before)], -1)
            products[index] = torch.cat([upper, torch.cat([across, after], -1)], -2)
        half *= 2
    return [product.squeeze(-3) for product in products]
