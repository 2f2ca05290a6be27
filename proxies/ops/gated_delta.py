"""The gated delta rule: decay the state, then write only what it did not already say (Gated DeltaNet).

    S_t = exp(g_t) S_(t-1) + b_t k_t (v_t - exp(g_t) S_(t-1)^T k_t)^T        o_t = S_t^T q_t / sqrt(d_k)

Shapes: q, k `[B, T, H, d_k]`, k of length at most 1; v `[B, T, H, d_v]`; beta, g `[B, T, H]`; o as v.
The chunked form solves one triangular system for what a chunk writes (arXiv 2406.06484, 2412.06464).
"""

import torch
from torch import Tensor

from proxies.ops import kernels
from proxies.ops.chunks import from_chunks, log_decays_to_chunks, pairwise_decay, to_chunks

CHUNK = 32
LONGEST_WHOLE = 64  # up to here one chunk is faster: it needs no state


def gated_delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor) -> Tensor:
    """fla's `chunk_gated_delta_rule`, in the form that suits the device."""
    return kernels.run("gated_delta", gated_delta_chunked, q=q, k=k, v=v, beta=beta, g=g)


def gated_delta_recurrence(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor) -> Tensor:
    """One step after the other."""
    state = k.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        state = g[:, t].exp()[..., None, None] * state
        known = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        written = beta[:, t, :, None] * (v[:, t] - known)
        state = state + k[:, t, :, :, None] * written[..., None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t] * q.shape[-1] ** -0.5))
    return torch.stack(outputs, dim=1)


def gated_delta_chunked(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor) -> Tensor:
    """What a chunk writes, w, solves one triangular system.

        w_i + sum_(j<i) A_ij w_j = b_i (v_i - exp(G_i) S^T k_i)        A_ij = b_i exp(G_i - G_j) k_i.k_j

    G are the log decays summed from the chunk's start, S is the state it starts from.
    """
    length = q.shape[1]
    size = length if length <= LONGEST_WHOLE else CHUNK
    q, k, k_beta, v_beta = (
        to_chunks(x, size) for x in (q * q.shape[-1] ** -0.5, k, k * beta[..., None], v * beta[..., None])
    )
    sums = log_decays_to_chunks(g, size)
    decay = pairwise_decay(sums)
    system = k_beta @ k.mT * decay  # the solver reads what is strictly below the diagonal
    scores = q @ k.mT * decay
    if len(q) == 1:
        return from_chunks(scores @ solve(system, v_beta), length)

    inverse = solve(system, torch.eye(size, dtype=q.dtype, device=q.device).expand_as(system))
    kept, last = sums.exp()[..., None], sums[..., -1:]
    written, states = write(
        inverse @ v_beta, inverse @ (k_beta * kept), k * (last - sums).exp()[..., None], last.exp()[..., None]
    )
    return from_chunks(scores @ written + (q * kept) @ states, length)


def solve(system: Tensor, right: Tensor) -> Tensor:
    """`x` of `(I + tril(system, -1)) x = right`; what stands on and above the diagonal is not read."""
    return torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)


def write(fresh: Tensor, known: Tensor, k: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """Walk the chunks: what each writes, given the state it starts from; and those states."""
    state = fresh.new_zeros(*k.shape[1:3], k.shape[-1], fresh.shape[-1])
    written, states = [], []
    for fresh_n, known_n, k_n, decay_n in zip(*(x.unbind(0) for x in (fresh, known, k, decay)), strict=True):
        states.append(state)
        written.append(fresh_n - known_n @ state)
        state = torch.addcmul(k_n.mT @ written[-1], state, decay_n)
    return torch.stack(written), torch.stack(states)
