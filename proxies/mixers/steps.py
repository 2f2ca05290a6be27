"""Step sizes as Mamba-2 has them: a gate decays the state by `exp(-exp(A_log) softplus(input + dt_bias))`."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from proxies.fusion import fused

LARGEST_RATE = 16.0  # of exp(A_log) at the start
STEP_RANGE = (1e-3, 1e-1)


@torch.no_grad()
def start_steps(a_log: Tensor, dt_bias: Tensor, generator: Generator, smallest_rate: float) -> None:
    """Decay rates uniform in `smallest_rate`..16; steps log-uniform in 0.001..0.1, kept as the inverse of softplus."""
    a_log.uniform_(smallest_rate, LARGEST_RATE, generator=generator).log_()
    low, high = map(math.log, STEP_RANGE)
    step = torch.rand(dt_bias.shape, generator=generator).mul(high - low).add(low).exp()
    dt_bias.copy_(step + torch.log(-torch.expm1(-step)))


@fused
def log_decay(step_KBTH: Tensor, bias_KH: Tensor, log_rate_KH: Tensor, least: float | None = None) -> Tensor:
    """`-exp(A) softplus(step + bias)`, in float32, and not below `least` if that is given."""
    decay = -log_rate_KH.exp()[:, None, None] * F.softplus(step_KBTH.float() + bias_KH[:, None, None])
    return decay if least is None else decay.clamp(min=least)
