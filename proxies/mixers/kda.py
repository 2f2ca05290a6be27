"""Kimi Delta Attention: the gated delta rule with a decay for each key channel (arXiv 2510.26692)."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from proxies.layers import Linear, RMSNorm, Stacked, unit_length
from proxies.mixers.base import Mixer, split_heads
from proxies.mixers.steps import start_steps
from proxies.ops.kda import kda
from space.mixers import Shape


class KimiDeltaAttention(Mixer, Stacked):
    """fla's KimiDeltaAttention. SiLU stays on q, k and v without the short convolution; the output gate is a sigmoid.

    Decay and output gate come from the input through a bottleneck as wide as the values of one head.
    """

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.add_inputs(q=shape.keys, k=shape.keys, v=shape.values)
        self.f_proj = nn.Sequential(self.linear(shape.value_dim), Linear(num_replicas, shape.value_dim, shape.keys))
        self.b_proj = self.linear(shape.heads)
        self.A_log = nn.Parameter(torch.empty(num_replicas, shape.heads))
        self.dt_bias = nn.Parameter(torch.empty(num_replicas, shape.keys))
        self.g_proj = nn.Sequential(
            self.linear(shape.value_dim), Linear(num_replicas, shape.value_dim, shape.values, bias=True)
        )
        self.o_norm = RMSNorm(num_replicas, shape.value_dim)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)

    def start(self, replica: int, generator: Generator, std: float) -> None:
        start_steps(self.A_log.data[replica], self.dt_bias.data[replica], generator, smallest_rate=1.0)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        q, k, v = (self.input(name, x_KBTD, silu=True) for name in "qkv")
        q, k = (unit_length(split_heads(y, self.shape.key_dim)) for y in (q, k))
        beta = self.b_proj(x_KBTD).sigmoid().flatten(0, 1)
        step = F.softplus(self.f_proj(x_KBTD) + self.dt_bias[:, None, None]).unflatten(-1, (self.shape.heads, -1))
        decay = -(self.A_log.exp()[:, None, None, :, None] * step).flatten(0, 1)
        mixed = kda(q, k, split_heads(v, self.shape.value_dim), decay, beta)
        gate = self.g_proj(x_KBTD).sigmoid()
        return self.o_proj(self.o_norm(mixed.unflatten(0, (self.num_replicas, -1))).flatten(-2) * gate)
