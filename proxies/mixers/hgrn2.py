"""HGRN-2: gated linear attention whose key is what the forget gate lets in (arXiv 2404.07904)."""

import torch.nn.functional as F
from torch import Tensor

from proxies.fusion import fused
from proxies.layers import Linear, RMSNorm
from proxies.mixers.base import CHUNK, Kept, Mixer, merge_heads, split_heads
from proxies.mixers.hgrn import forget_gate
from proxies.ops.gla import gla
from space.mixers import Shape

OUTPUT_NORM_EPS = 1e-5  # fla's layer does not hand its norm_eps to this norm


class HGRN2(Mixer):
    """fla's HGRN2Attention. The convolution has no activation; the output norm spans all heads."""

    op = "gla"
    kept = Kept(key=10, value=3, head=CHUNK)
    lower_bounded = True

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.add_inputs(q=shape.keys, f=shape.keys, i=shape.values)
        self.g_norm = RMSNorm(num_replicas, shape.values, eps=OUTPUT_NORM_EPS)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)

    def forward(self, x_KBTD: Tensor, lower_bound_KD: Tensor | None = None) -> Tensor:
        q, forget, value = (
            self.mix_near(name, y, silu=False) for name, y in zip("qfi", self.project(x_KBTD, "qfi"), strict=True)
        )
        q, key, decay = _gated(q, forget, lower_bound_KD)
        q, key, decay = (split_heads(y, self.shape.key_dim) for y in (q, key, decay))
        mixed = gla(q, key, split_heads(value, self.shape.value_dim), decay)
        return self.o_proj(self.g_norm(merge_heads(mixed, self.num_replicas)))


@fused
def _gated(q_KBTD: Tensor, logits_KBTD: Tensor, lower_bound_KD: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The query, the key, which is what the forget gate lets in, and the log of the gate."""
    decay, take = forget_gate(logits_KBTD, lower_bound_KD)
    return F.silu(q_KBTD), take.to(q_KBTD.dtype), decay
