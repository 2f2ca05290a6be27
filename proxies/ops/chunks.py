"""Cutting time into chunks, and carrying a decaying matrix state from one chunk to the next.

Shapes: N chunks, B batch, H heads, C steps of a chunk, d size of a head (k of keys, v of values).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_LOG_DECAY = -100.0  # exp(-100) is zero beside anything float32 can add to it


def to_chunks(x_BTHd: Tensor, size: int) -> Tensor:
    """`[B, T, H, d]` as `[N, B, H, C, d]`, padded with zeros: chunks come first so that each is one block of memory."""
    batch, length, heads, dim = x_BTHd.shape
    if length % size:
        x_BTHd = F.pad(x_BTHd, (0, 0, 0, 0, 0, -length % size))
    return x_BTHd.reshape(batch, -1, size, heads, dim).permute(1, 0, 3, 2, 4).contiguous()


def from_chunks(x_NBHCd: Tensor, length: int) -> Tensor:
    """The inverse of `to_chunks`: `[B, T, H, d]` without the padding."""
    _, batch, heads, _, dim = x_NBHCd.shape
    return x_NBHCd.permute(1, 0, 3, 2, 4).reshape(batch, -1, heads, dim)[:, :length]


def log_decays_to_chunks(g_BTH: Tensor, size: int) -> Tensor:
    """Log decays `[B, T, H]` summed from each chunk's start, its own step included: `[N, B, H, C]`."""
    return to_chunks(g_BTH.clamp(min=SMALLEST_LOG_DECAY)[..., None], size).squeeze(-1).cumsum(-1)


def pairwise_decay(sums_NBHC: Tensor, scale: float = 1.0) -> Tensor:
    """`scale` times the decay from step j to step i of a chunk, `[N, B, H, C, C]`; zero for j after i.

    The mask goes in before the exponential: after it, an infinite decay of a masked pair would turn gradients into NaN.
    """
    size = sums_NBHC.shape[-1]
    later = torch.ones(size, size, dtype=torch.bool, device=sums_NBHC.device).triu(1)
    between = sums_NBHC[..., :, None] - sums_NBHC[..., None, :]
    return between.add_(math.log(scale)).masked_fill_(later, -torch.inf).exp_()


def entering_states(updates_NBHkv: Tensor, decay_NBHk1: Tensor) -> Tensor:
    """The state each chunk starts from, given what every chunk adds and how much of the old state it keeps."""
    state = torch.zeros_like(updates_NBHkv[0])
    states = [state]
    for update, decay in zip(updates_NBHkv[:-1].unbind(0), decay_NBHk1[:-1].unbind(0), strict=True):
        state = torch.addcmul(update, state, decay)
        states.append(state)
    return torch.stack(states)
