"""Kimi Delta Attention: the gated delta rule with a decay for each key channel (arXiv 2510.26692)."""

import torch
from torch import Generator, Tensor, nn

from proxies.layers import GatedRMSNorm, Linear, Stacked
from proxies.mixers.base import CHUNK, Kept, Mixer, merge_heads, split_heads
from proxies.mixers.steps import log_decay, start_steps
from proxies.ops.kda import kda
from space.mixers import Shape

LEAST_LOG_DECAY = -6.0  # a step's; exp(-6) is lost in bfloat16, and fla's products of 16 steps stay inside float32


class KimiDeltaAttention(Mixer, Stacked):
    """fla's KimiDeltaAttention. SiLU stays on q, k and v without the short convolution; the output gate is a sigmoid.

    Decay and output gate come from the input through a bottleneck as wide as the values of one head. On a GPU a step
    keeps at least exp(LEAST_LOG_DECAY) of the state.
    """

    op = "kda"
    kept = Kept(key=11, value=4, head=CHUNK + 8)

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
        self.o_norm = GatedRMSNorm(num_replicas, shape.value_dim, silu=False)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)

    def start(self, replica: int, generator: Generator, std: float) -> None:
        start_steps(self.A_log.data[replica], self.dt_bias.data[replica], generator, smallest_rate=1.0)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        q, k, v, strength, step, gate = self.project(x_KBTD, "qkvb", self.f_proj[0], self.g_proj[0])
        q = self.mix_near("q", q, silu=True, unit=self.shape.key_dim)
        k = self.mix_near("k", k, silu=True, unit=self.shape.key_dim)
        v = self.mix_near("v", v, silu=True)
        rates = self.A_log.repeat_interleave(self.shape.key_dim, dim=-1)
        decay = log_decay(self.f_proj[1](step), self.dt_bias, rates, LEAST_LOG_DECAY if step.is_cuda else None)
        q, k, decay = (split_heads(y, self.shape.key_dim) for y in (q, k, decay))
        mixed = kda(q, k, split_heads(v, self.shape.value_dim), decay, strength.sigmoid().flatten(0, 1))
        return self.o_proj(self.o_norm(merge_heads(mixed, self.num_replicas), self.g_proj[1](gate)))
