"""Gated linear attention: a decay for each key channel from a low-rank projection of the input (arXiv 2312.06635)."""

import torch.nn.functional as F
from torch import Tensor, nn

from proxies.fusion import fused
from proxies.layers import GatedRMSNorm, Linear
from proxies.mixers.base import CHUNK, Kept, Mixer, merge_heads, split_heads
from proxies.ops.gla import gla
from space.mixers import GLA_GATE_RANK, Shape

GATE_NORMALISER = 16  # a gate starts near exp(-log(2) / 16), so the state forgets slowly


class GatedLinearAttention(Mixer):
    """fla's GatedLinearAttention."""

    op = "gla"
    kept = Kept(key=7, value=3, head=CHUNK)

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.add_inputs(q=shape.keys, k=shape.keys, v=shape.values)
        self.g_proj = self.linear(shape.values)
        self.gk_proj = nn.Sequential(
            self.linear(GLA_GATE_RANK), Linear(num_replicas, GLA_GATE_RANK, shape.keys, bias=True)
        )
        self.g_norm_swish_gate = GatedRMSNorm(num_replicas, shape.value_dim)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        q, k, v, gate, low = self.project(x_KBTD, "qkvg", self.gk_proj[0])
        q, k, v = (self.mix_near(name, y, silu=self.shape.conv) for name, y in zip("qkv", (q, k, v), strict=True))
        decay = _log_decay(self.gk_proj[1](low))
        q, k, decay = (split_heads(y, self.shape.key_dim) for y in (q, k, decay))
        mixed = gla(q, k, split_heads(v, self.shape.value_dim), decay)
        mixed = self.g_norm_swish_gate(merge_heads(mixed, self.num_replicas), gate)
        return self.o_proj(mixed)


@fused
def _log_decay(logits_KBTD: Tensor) -> Tensor:
    return F.logsigmoid(logits_KBTD.float()) / GATE_NORMALISER
