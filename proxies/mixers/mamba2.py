"""Mamba-2: one decay a head and step, from a step size that also scales what is written (arXiv 2405.21060)."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from proxies.layers import Linear, RMSNorm, ShortConv, Stacked
from proxies.mixers.base import Mixer, merge_heads, split_heads
from proxies.mixers.steps import start_steps
from proxies.ops.simple_decay import simple_decay
from space.mixers import Shape


class BiasedConv(ShortConv):
    """The short convolution with a bias, which starts at zero, and SiLU behind it."""

    def __init__(self, num_replicas: int, dim: int) -> None:
        super().__init__(num_replicas, dim)
        self.bias = nn.Parameter(torch.zeros(num_replicas, dim))

    def forward(self, x_KBTD: Tensor, *, silu: bool = True) -> Tensor:
        y = super().forward(x_KBTD) + self.bias[:, None, None]
        return (F.silu(y) if silu else y).to(x_KBTD.dtype)


class Mamba2(Mixer, Stacked):
    """fla's Mamba2 with its norm behind the gate. All heads read and write with the same C and B, one group.

    `out_proj` starts as every other projection: fla rescales it by the number of layers, which it counts without MLPs.
    """

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.parts = [shape.values, shape.values + 2 * shape.key_dim, shape.heads]  # of in_proj: z; x, B, C; dt
        self.conv1d = BiasedConv(num_replicas, self.parts[1])
        self.in_proj = self.linear(sum(self.parts))
        self.dt_bias = nn.Parameter(torch.empty(num_replicas, shape.heads))
        self.A_log = nn.Parameter(torch.empty(num_replicas, shape.heads))
        self.norm = RMSNorm(num_replicas, shape.values)
        self.D = nn.Parameter(torch.ones(num_replicas, shape.heads))
        self.out_proj = Linear(num_replicas, shape.values, shape.width)

    def start(self, replica: int, generator: Generator, std: float) -> None:
        start_steps(self.A_log.data[replica], self.dt_bias.data[replica], generator, smallest_rate=1.0)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        shape = self.shape
        gate, mixed, dt = self.in_proj(x_KBTD).split(self.parts, dim=-1)
        x, b, c = self.conv1d(mixed).split([shape.values, shape.key_dim, shape.key_dim], dim=-1)
        x = split_heads(x, shape.value_dim)
        b, c = (split_heads(y, shape.key_dim).expand(-1, -1, shape.heads, -1) for y in (b, c))
        step = F.softplus(dt + self.dt_bias[:, None, None])
        decay = -(self.A_log.exp()[:, None, None] * step).flatten(0, 1)
        unscaled = (step * shape.key_dim**0.5).flatten(0, 1)[..., None]  # the op divides by the root of key_dim
        mixed = merge_heads(simple_decay(c, b, x * unscaled, decay), self.num_replicas)
        skipped = self.D.repeat_interleave(shape.value_dim, dim=-1)[:, None, None] * merge_heads(x, self.num_replicas)
        return self.out_proj(self.norm((mixed + skipped) * F.silu(gate)))
