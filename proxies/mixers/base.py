"""What the mixers share: projections with an optional short convolution, and the cut into heads.

A mixer is built from its `Shape` alone; parameters have the names and shapes of fla's layer plus the replica axis.
Shapes: K replicas, B batch, T time, D width, H heads, d size of a head.
"""

from typing import NamedTuple

from torch import Tensor, nn

from proxies.layers import Linear, ShortConv, activate, project
from space.mixers import Shape

CHUNK = 64  # steps to which fla's kernels keep a state and a square matrix a head


class Kept(NamedTuple):
    """What a mixer keeps of a token for its backward pass: elements of 2 bytes for each key channel, each value channel
    and each head."""

    key: int
    value: int
    head: int


class Mixer(nn.Module):
    """Mixes tokens causally: `forward(x_KBTD) -> x_KBTD`. `op` is what does it: one of `ops.kernels`. `kept` is
    what `proxies.memory` plans with.

    A mixer with `lower_bounded` also takes the layer's lower bounds on its forget gate, `[K, channels]` in [0, 1), or
    None in the first layer.
    """

    op: str
    kept: Kept
    lower_bounded = False
    dropout = 0.0  # of attention's weights while training; no other mixer has any

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__()
        self.shape = shape
        self.num_replicas = num_replicas

    def linear(self, out_dim: int) -> Linear:
        return Linear(self.num_replicas, self.shape.width, out_dim)

    def add_inputs(self, **dims: int) -> None:
        """`name_proj` for each name, and `name_conv1d` behind it when the shape has the short convolution."""
        for name, dim in dims.items():
            self.add_module(f"{name}_proj", self.linear(dim))
        if self.shape.conv:
            for name, dim in dims.items():
                self.add_module(f"{name}_conv1d", ShortConv(self.num_replicas, dim))

    def project(self, x_KBTD: Tensor, names: str, *others: nn.Module) -> list[Tensor]:
        """`x` through `<name>_proj` for each of the names, one letter each, and through other Linears."""
        linears = (*(self.get_submodule(f"{name}_proj") for name in names), *others)
        return project(x_KBTD, [linear.get_parameter("weight") for linear in linears])

    def mix_near(self, name: str, x_KBTD: Tensor, *, silu: bool, unit: int | None = None) -> Tensor:
        """What `name_proj` gave, through the short convolution if there is one, then SiLU and unit length if asked."""
        if self.shape.conv:
            return self.get_submodule(f"{name}_conv1d")(x_KBTD, silu=silu, unit=unit)
        return activate(x_KBTD, silu=silu, unit=unit)


def split_heads(x_KBTD: Tensor, head_dim: int) -> Tensor:
    """`[K, B, T, H*d]` as `[K*B, T, H, d]`, the layout of the ops."""
    return x_KBTD.flatten(0, 1).unflatten(-1, (-1, head_dim))


def merge_heads(x_BTHd: Tensor, num_replicas: int) -> Tensor:
    """The inverse of `split_heads`."""
    return x_BTHd.flatten(2).unflatten(0, (num_replicas, -1))
