"""Gated DeltaNet: the delta rule on a state that also decays, by a step size as in Mamba-2 (arXiv 2412.06464)."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from proxies.layers import GatedRMSNorm, Linear, Stacked, unit_length
from proxies.mixers.base import Mixer, merge_heads, split_heads
from proxies.ops.gated_delta import gated_delta
from space.mixers import Shape

LARGEST_RATE = 16.0
STEP_RANGE = (1e-3, 1e-1)


class GatedDeltaNet(Mixer, Stacked):
    """fla's GatedDeltaNet with its output gate. SiLU stays on q, k and v without the short convolution."""

    op = "gated_delta"

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.add_inputs(q=shape.keys, k=shape.keys, v=shape.values)
        self.a_proj = self.linear(shape.heads)
        self.b_proj = self.linear(shape.heads)
        self.A_log = nn.Parameter(torch.empty(num_replicas, shape.heads))
        self.dt_bias = nn.Parameter(torch.empty(num_replicas, shape.heads))
        self.g_proj = self.linear(shape.values)
        self.o_norm = GatedRMSNorm(num_replicas, shape.value_dim)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)

    @torch.no_grad()
    def start(self, replica: int, generator: Generator, std: float) -> None:
        """Decay rates uniform in 0..16; step sizes log-uniform in 0.001..0.1, kept as the inverse of softplus."""
        self.A_log[replica].uniform_(0, LARGEST_RATE, generator=generator).log_()
        low, high = map(math.log, STEP_RANGE)
        step = torch.rand(self.shape.heads, generator=generator).mul(high - low).add(low).exp()
        self.dt_bias[replica] = step + torch.log(-torch.expm1(-step))

    def forward(self, x_KBTD: Tensor) -> Tensor:
        q, k, v = (self.input(name, x_KBTD, silu=True) for name in "qkv")
        q, k = (unit_length(split_heads(y, self.shape.key_dim)) for y in (q, k))
        beta = self.b_proj(x_KBTD).sigmoid().flatten(0, 1)
        step = F.softplus(self.a_proj(x_KBTD) + self.dt_bias[:, None, None])
        decay = -(self.A_log.exp()[:, None, None] * step).flatten(0, 1)
        mixed = gated_delta(q, k, split_heads(v, self.shape.value_dim), beta, decay)
        return self.o_proj(self.o_norm(merge_heads(mixed, self.num_replicas), self.g_proj(x_KBTD)))
