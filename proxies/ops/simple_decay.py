"""Linear attention with one decay a head and step (RetNet, Mamba-2).

    S_t = exp(g_t) S_(t-1) + k_t v_t^T        o_t = S_t^T q_t / sqrt(d_k)

Shapes: q, k `[B, T, H, d_k]`; v `[B, T, H, d_v]`; g `[B, T, H]`, where a batch of 1 shares the decays; o as v.
"""

import torch
from torch import Tensor

from proxies.ops import kernels
from proxies.ops.chunks import entering_states, from_chunks, log_decays_to_chunks, pairwise_decay, to_chunks

CHUNK = 64


def simple_decay(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """fla's `chunk_simple_gla`, in the form that suits the device."""
    return kernels.run("simple_decay", simple_decay_chunked, q=q, k=k, v=v, g=g)


def simple_decay_recurrence(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """One step after the other."""
    state = k.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        state = g[:, t].exp()[..., None, None] * state + k[:, t, :, :, None] * v[:, t, :, None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t] * q.shape[-1] ** -0.5))
    return torch.stack(outputs, dim=1)


def simple_decay_chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """Inside a chunk a masked product of all pairs; between chunks one state. The scale rides on the decays."""
    length, scale = q.shape[1], q.shape[-1] ** -0.5
    size = min(CHUNK, length)
    q, k, v = (to_chunks(x, size) for x in (q, k, v))
    sums = log_decays_to_chunks(g, size)
    output = (q @ k.mT * pairwise_decay(sums, scale)) @ v
    if len(q) > 1:
        last = sums[..., -1:]
        updates = (k * (last - sums).exp()[..., None]).mT @ v
        states = entering_states(updates, last.exp()[..., None])
        output = output + (q * (sums.exp() * scale)[..., None]) @ states
    return from_chunks(output, length)
