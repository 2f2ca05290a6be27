"""HGRN: a gated vector state whose forget gate has a learned lower bound that rises with depth (arXiv 2311.04823)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from proxies.layers import GatedRMSNorm, Linear
from proxies.mixers.base import Mixer
from proxies.ops.hgrn import hgrn
from space.mixers import Shape


class HGRN(Mixer):
    """fla's HGRNAttention. The convolution is on the input and the forget gate, without an activation."""

    op = "hgrn"
    lower_bounded = True

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.add_inputs(i=shape.values, f=shape.values)
        self.g_proj = self.linear(shape.values)
        self.g_norm = GatedRMSNorm(num_replicas, shape.values)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)

    def forward(self, x_KBTD: Tensor, lower_bound_KD: Tensor | None = None) -> Tensor:
        value, forget = (self.input(name, x_KBTD, silu=False) for name in "if")
        decay, take = forget_gate(forget, lower_bound_KD)
        gated = F.silu(value) * take
        mixed = hgrn(gated.flatten(0, 1), decay.flatten(0, 1)).view_as(gated)
        return self.o_proj(self.g_norm(mixed, self.g_proj(x_KBTD)))


def forget_gate(logits_KBTD: Tensor, lower_bound_KD: Tensor | None) -> tuple[Tensor, Tensor]:
    """The log of the forget gate `f = bound + (1 - bound) sigmoid(logits)`, and what it lets in, `1 - f`."""
    if lower_bound_KD is None:
        return F.logsigmoid(logits_KBTD), torch.sigmoid(-logits_KBTD)
    take = (1 - lower_bound_KD)[:, None, None] * torch.sigmoid(-logits_KBTD)
    return torch.log1p(-take), take
