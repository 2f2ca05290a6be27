"""Gated DeltaNet: the delta rule on a state that also decays, by a step size as in Mamba-2 (arXiv 2412.06464)."""

import torch
from torch import Generator, Tensor, nn

from proxies.layers import GatedRMSNorm, Linear, Stacked
from proxies.mixers.base import CHUNK, Kept, Mixer, merge_heads, split_heads
from proxies.mixers.steps import log_decay, start_steps
from proxies.ops.gated_delta import gated_delta
from space.mixers import Shape


class GatedDeltaNet(Mixer, Stacked):
    """fla's GatedDeltaNet with its output gate. SiLU stays on q, k and v without the short convolution."""

    op = "gated_delta"
    kept = Kept(key=4, value=4, head=CHUNK)

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

    def start(self, replica: int, generator: Generator, std: float) -> None:
        start_steps(self.A_log.data[replica], self.dt_bias.data[replica], generator, smallest_rate=0.0)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        q, k, v, gate, step, strength = self.project(x_KBTD, "qkvgab")
        q = self.mix_near("q", q, silu=True, unit=self.shape.key_dim)
        k = self.mix_near("k", k, silu=True, unit=self.shape.key_dim)
        v = self.mix_near("v", v, silu=True)
        q, k = (split_heads(y, self.shape.key_dim) for y in (q, k))
        decay = log_decay(step, self.dt_bias, self.A_log).flatten(0, 1)
        strength = strength.sigmoid().flatten(0, 1)
        mixed = gated_delta(q, k, split_heads(v, self.shape.value_dim), strength, decay)
        return self.o_proj(self.o_norm(merge_heads(mixed, self.num_replicas), gate))
