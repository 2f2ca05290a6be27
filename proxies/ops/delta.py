"""The delta rule: write only what the state did not already say (DeltaNet).

    S_t = S_(t-1) + b_t k_t (v_t - S_(t-1)^T k_t)^T        o_t = S_t^T q_t / sqrt(d_k)

Shapes: q, k `[B, T, H, d_k]`, k of length at most 1; v `[B, T, H, d_v]`; beta `[B, T, H]`; o as v.
"""

import torch
from torch import Tensor

from proxies.ops import kernels
from proxies.ops.gated_delta import gated_delta_chunked


def delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """fla's `chunk_delta_rule`, in the form that suits the device."""
    return kernels.run("delta", delta_chunked, q=q, k=k, v=v, beta=beta)


def delta_recurrence(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """One step after the other."""
    state = k.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        known = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        written = beta[:, t, :, None] * (v[:, t] - known)
        state = state + k[:, t, :, :, None] * written[..., None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t] * q.shape[-1] ** -0.5))
    return torch.stack(outputs, dim=1)


def delta_chunked(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """The gated delta rule whose decays are all 1, the same for every sequence."""
    return gated_delta_chunked(q, k, v, beta, beta.new_zeros(1, *beta.shape[1:]))
