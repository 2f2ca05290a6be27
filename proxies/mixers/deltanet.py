"""DeltaNet: keys of unit length, and a learned strength for each write (arXiv 2406.06484)."""

from torch import Tensor

from proxies.layers import Linear, RMSNorm, unit_length
from proxies.mixers.base import Mixer, split_heads
from proxies.ops.delta import delta
from space.mixers import Shape


class DeltaNet(Mixer):
    """fla's DeltaNet. SiLU stays on q, k and v without the short convolution."""

    op = "delta"

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.add_inputs(q=shape.keys, k=shape.keys, v=shape.values)
        self.b_proj = self.linear(shape.heads)
        self.o_norm = RMSNorm(num_replicas, shape.value_dim)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        q, k, v = (self.input(name, x_KBTD, silu=True) for name in "qkv")
        q, k = (unit_length(split_heads(y, self.shape.key_dim)) for y in (q, k))
        beta = self.b_proj(x_KBTD).sigmoid().flatten(0, 1)
        mixed = delta(q, k, split_heads(v, self.shape.value_dim), beta)
        mixed = self.o_norm(mixed.unflatten(0, (self.num_replicas, -1)))
        return self.o_proj(mixed.flatten(-2))
