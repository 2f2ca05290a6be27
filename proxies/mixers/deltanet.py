"""DeltaNet: keys of unit length, and a learned strength for each write (arXiv 2406.06484)."""

from torch import Tensor

from proxies.layers import Linear, RMSNorm
from proxies.mixers.base import CHUNK, Kept, Mixer, split_heads
from proxies.ops.delta import delta
from space.mixers import Shape


class DeltaNet(Mixer):
    """fla's DeltaNet. SiLU stays on q, k and v without the short convolution."""

    op = "delta"
    kept = Kept(key=4, value=3, head=CHUNK)

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.add_inputs(q=shape.keys, k=shape.keys, v=shape.values)
        self.b_proj = self.linear(shape.heads)
        self.o_norm = RMSNorm(num_replicas, shape.value_dim)
        self.o_proj = Linear(num_replicas, shape.values, shape.width)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        q, k, v, strength = self.project(x_KBTD, "qkvb")
        q = self.mix_near("q", q, silu=True, unit=self.shape.key_dim)
        k = self.mix_near("k", k, silu=True, unit=self.shape.key_dim)
        v = self.mix_near("v", v, silu=True)
        q, k = (split_heads(y, self.shape.key_dim) for y in (q, k))
        mixed = delta(q, k, split_heads(v, self.shape.value_dim), strength.sigmoid().flatten(0, 1))
        mixed = self.o_norm(mixed.unflatten(0, (self.num_replicas, -1)))
        return self.o_proj(mixed.flatten(-2))
