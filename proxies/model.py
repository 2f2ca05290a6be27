"""HybridLM: a stack of replicas of one design, trained side by side as one model.

Blocks are those of fla's `*ForCausalLM`: norm, mixer, residual; norm, SwiGLU, residual; untied head.
Shapes: K replicas, B batch, T time, D width, V vocabulary, P positions.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from proxies.layers import INIT_STD, Embedding, Linear, RMSNorm, Stacked, SwiGLU
from proxies.mixers import MIXERS
from space.cost import layer_shapes
from space.design import Design
from space.mixers import Shape
from space.scale import Scale


class Block(nn.Module):
    """One layer: a mixer and an MLP, each behind its norm and beside the residual."""

    def __init__(self, mixer: str, shape: Shape, scale: Scale, num_replicas: int, dropout: float) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(num_replicas, scale.width)
        self.attn = MIXERS[mixer](shape, num_replicas)
        self.attn.dropout = dropout
        self.mlp_norm = RMSNorm(num_replicas, scale.width)
        self.mlp = SwiGLU(num_replicas, scale.width, scale.mlp_dim)
        self.drop = _dropout(dropout)

    def forward(self, x_KBTD: Tensor, last_KBTD: Tensor | None, lower_bound_KD: Tensor | None) -> tuple[Tensor, Tensor]:
        """The residual stream without what the layer's MLP adds to it, and that: a norm takes sums in its stride.
        `last` is what the layer before has left to add."""
        x_KBTD, normed = self.attn_norm.after_sum(x_KBTD, last_KBTD)
        mixed = self.attn(normed, lower_bound_KD) if self.attn.lower_bounded else self.attn(normed)
        x_KBTD, normed = self.mlp_norm.after_sum(x_KBTD, self.drop(mixed))
        return x_KBTD, self.drop(self.mlp(normed))


class HybridLM(nn.Module):
    """A language model of `design` at `scale`, one replica for each seed. Replica k depends on `seeds[k]` alone.

    HGRN's lower bounds live here, as in fla: one row a layer, all layers counted, whatever their mixer. Where such
    layers differ in channels they share the first columns. Raises ValueError when the design does not fit the scale.
    """

    def __init__(
        self,
        design: Design,
        scale: Scale,
        seeds: Sequence[int],
        *,
        init_std: float = INIT_STD,
        embedding_std: float = INIT_STD,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.design, self.scale = design, scale
        num_replicas = len(seeds)
        shapes = layer_shapes(design, scale)
        self.embeddings = Embedding(num_replicas, scale.vocab, scale.width)
        self.drop = _dropout(dropout)
        self.layers = nn.ModuleList(
            Block(layer.mixer, shape, scale, num_replicas, dropout)
            for layer, shape in zip(design.layers, shapes, strict=True)
        )
        self.norm = RMSNorm(num_replicas, scale.width)
        self.lm_head = Linear(num_replicas, scale.width, scale.vocab)
        self.bounded = [
            shape.values if MIXERS[layer.mixer].lower_bounded else 0
            for layer, shape in zip(design.layers, shapes, strict=True)
        ]
        if any(self.bounded):
            self.lower_bounds = nn.Parameter(torch.zeros(num_replicas, design.depth, max(self.bounded)))

        for replica, seed in enumerate(seeds):
            generator = Generator().manual_seed(seed)
            for module in self.modules():
                if isinstance(module, Stacked):
                    std = embedding_std if isinstance(module, Embedding) else init_std
                    module.start(replica, generator, std)

    def forward(self, tokens_KBT: Tensor, positions: Tensor | None = None) -> Tensor:
        """Logits `[K, B, T, V]`, or only those at `positions` `[K, B, P]`: `[K, B, P, V]`."""
        x_KBTD = self.drop(self.embeddings(tokens_KBT))
        last: Tensor | None = None
        for layer, bound in zip(self.layers, self._layer_bounds(), strict=True):
            x_KBTD, last = layer(x_KBTD, last, bound)
        assert last is not None
        if positions is not None:
            index = positions[..., None].expand(-1, -1, -1, x_KBTD.shape[-1])
            x_KBTD, last = x_KBTD.gather(2, index), last.gather(2, index)
        _, normed = self.norm.after_sum(x_KBTD, last)
        return self.lm_head(normed)

    def _layer_bounds(self) -> list[Tensor | None]:
        """Each layer's lower bounds: softmax over depth, summed up to the layer, so that the first layer has none."""
        if not any(self.bounded):
            return [None] * len(self.layers)
        shares = self.lower_bounds.softmax(1)
        rows = (shares.cumsum(1) - shares[:, :1]).unbind(1)
        return [
            row[:, :channels] if channels and index else None
            for index, (row, channels) in enumerate(zip(rows, self.bounded, strict=True))
        ]

    def matrices(self) -> list[nn.Parameter]:
        """The weights that a GPU multiplies by: its tensor cores want them in bfloat16."""
        return [module.weight for module in self.modules() if isinstance(module, Linear | Embedding)]

    def replica_state_dict(self, replica: int) -> dict[str, Tensor]:
        """One replica's weights under the names fla's model gives them."""
        return {
            name if name.startswith("lm_head.") else f"model.{name}": parameter.detach()[replica].clone()
            for name, parameter in self.named_parameters()
        }


def _dropout(share: float) -> nn.Module:
    return nn.Dropout(share) if share else nn.Identity()
