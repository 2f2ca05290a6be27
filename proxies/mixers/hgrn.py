"""HGRN: a gated vector state whose forget gate has a learned lower bound that rises with depth (arXiv 2311.04823)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from proxies.fusion import fused
from proxies.layers import GatedRMSNorm, Linear
from proxies.mixers.base import Kept, Mixer
from proxies.ops.hgrn import hgrn
from space.mixers import Shape


class HGRN(Mixer):
    """fla's HGRNAttention. The convolution is on the input and the forget gate, without an activation."""

    op = "hgrn"
    kept = Kept(key=0, value=12, head=0)
    lower_bounded = True

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.add_inputs(i=shape.values, f=shape.values)
        self.g_proj = self.linear(shape.values)
        self.g_norm = GatedRMSNorm(num_replicas, shape.values)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)

    def forward(self, x_KBTD: Tensor, lower_bound_KD: Tensor | None = None) -> Tensor:
        value, forget, gate = self.project(x_KBTD, "ifg")
        value, forget = self.mix_near("i", value, silu=False), self.mix_near("f", forget, silu=False)
        gated, decay = _gated(value, forget, lower_bound_KD)
        mixed = hgrn(gated.flatten(0, 1), decay.flatten(0, 1)).view_as(gated)
        return self.o_proj(self.g_norm(mixed, gate))


@fused
def _gated(value_KBTD: Tensor, logits_KBTD: Tensor, lower_bound_KD: Tensor | None) -> tuple[Tensor, Tensor]:
    """What enters the state, and the log of the forget gate."""
    decay, take = forget_gate(logits_KBTD, lower_bound_KD)
    return (F.silu(value_KBTD) * take).to(value_KBTD.dtype), decay


def forget_gate(logits_KBTD: Tensor, lower_bound_KD: Tensor | None) -> tuple[Tensor, Tensor]:
    """The log of the forget gate `f = bound + (1 - bound) sigmoid(logits)`, and what it lets in, `1 - f`: float32."""
    logits_KBTD = logits_KBTD.float()
    if lower_bound_KD is None:
        return F.logsigmoid(logits_KBTD), torch.sigmoid(-logits_KBTD)
    take = (1 - lower_bound_KD)[:, None, None] * torch.sigmoid(-logits_KBTD)
    return torch.log1p(-take), take
