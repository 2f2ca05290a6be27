"""Multi-scale retention: a fixed decay a head, rotary positions, a gated norm on each head (arXiv 2307.08621)."""

import torch
from torch import Tensor

from proxies.layers import GatedRMSNorm, Linear, rotate
from proxies.mixers.base import Kept, Mixer, merge_heads, split_heads
from proxies.ops.simple_decay import simple_decay
from space.mixers import Shape


class RetNet(Mixer):
    """fla's MultiScaleRetention. Head h keeps 1 - 2^(-5-h) of its state a step."""

    op = "simple_decay"
    kept = Kept(key=3, value=3, head=4)
    log_decay: Tensor

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.add_inputs(q=shape.keys, k=shape.keys, v=shape.values)
        self.g_proj = self.linear(shape.values)
        self.g_norm_swish_gate = GatedRMSNorm(num_replicas, shape.value_dim)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)
        self.register_buffer("log_decay", torch.log1p(-(2.0 ** (-5.0 - torch.arange(shape.heads)))), persistent=False)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        q, k, v, gate = self.project(x_KBTD, "qkvg")
        q, k, v = (self.mix_near(name, y, silu=self.shape.conv) for name, y in zip("qkv", (q, k, v), strict=True))
        q, k = (rotate(split_heads(y, self.shape.key_dim)) for y in (q, k))
        decays_1TH = self.log_decay.expand(1, x_KBTD.shape[2], -1)
        mixed = simple_decay(q, k, split_heads(v, self.shape.value_dim), decays_1TH)
        mixed = self.g_norm_swish_gate(merge_heads(mixed, self.num_replicas), gate)
        return self.o_proj(mixed)
