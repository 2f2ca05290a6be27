"""Step sizes as Mamba-2 has them: a gate decays the state by `exp(-exp(A_log) softplus(input + dt_bias))`."""

import math

import torch
from torch import Generator, Tensor

LARGEST_RATE = 16.0  # of exp(A_log) at the start
STEP_RANGE = (1e-3, 1e-1)


@torch.no_grad()
def start_steps(a_log: Tensor, dt_bias: Tensor, generator: Generator, smallest_rate: float) -> None:
    """Decay rates uniform in `smallest_rate`..16; steps log-uniform in 0.001..0.1, kept as the inverse of softplus."""
    a_log.uniform_(smallest_rate, LARGEST_RATE, generator=generator).log_()
    low, high = map(math.log, STEP_RANGE)
    step = torch.rand(dt_bias.shape, generator=generator).mul(high - low).add(low).exp()
    dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
