"""Mamba-2: one decay a head and step, from a step size that also scales what is written (arXiv 2405.21060)."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from proxies.fusion import fused
from proxies.layers import Linear, RMSNorm, ShortConv, Stacked, project
from proxies.mixers.base import Kept, Mixer, merge_heads, split_heads
from proxies.mixers.steps import log_decay, start_steps
from proxies.ops.simple_decay import simple_decay
from space.mixers import Shape


class Mamba2(Mixer, Stacked):
    """fla's Mamba2 with its norm behind the gate. All heads read and write with the same C and B, one group.

    `out_proj` starts as every other projection: fla rescales it by the number of layers, which it counts without MLPs.
    """

    op = "simple_decay"
    kept = Kept(key=4, value=5, head=8)

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.parts = [shape.values, shape.values + 2 * shape.key_dim, shape.heads]  # of in_proj: z; x, B, C; dt
        self.conv1d = ShortConv(num_replicas, self.parts[1], bias=True)
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
        gate, mixed, step = project(x_KBTD, self.in_proj.weight.split(self.parts, dim=1))
        x, b, c = self.conv1d(mixed, silu=True).split([shape.values, shape.key_dim, shape.key_dim], dim=-1)
        x = split_heads(x, shape.value_dim)
        b, c = (split_heads(y, shape.key_dim).expand(-1, -1, shape.heads, -1) for y in (b, c))
        decay = log_decay(step, self.dt_bias, self.A_log).flatten(0, 1)
        written = _written(x, step.flatten(0, 1), self.dt_bias, shape.key_dim**0.5)
        mixed = merge_heads(simple_decay(c, b, written, decay), self.num_replicas)
        skip = self.D.repeat_interleave(shape.value_dim, dim=-1)[:, None, None]
        return self.out_proj(self.norm(_gated(mixed, merge_heads(x, self.num_replicas), skip, gate)))


@fused
def _written(x_BTHd: Tensor, step_BTH: Tensor, bias_KH: Tensor, scale: float) -> Tensor:
    """The values times their step size, and times what the op divides by."""
    bias = bias_KH.repeat_interleave(len(x_BTHd) // len(bias_KH), dim=0)[:, None]
    return (x_BTHd * (F.softplus(step_BTH.float() + bias) * scale)[..., None]).to(x_BTHd.dtype)


@fused
def _gated(mixed: Tensor, x: Tensor, skip: Tensor, gate: Tensor) -> Tensor:
    return ((mixed + skip * x) * F.silu(gate)).to(mixed.dtype)
