"""Today's practice: an eager loop over fla's layers, one replica at a time, with the same data and schedule.

The fused AdamW of torch, bfloat16 autocast, and softmax attention by SDPA.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proxies.protocol import Protocol
from proxies.tasks import RecallTask
from proxies.tasks.base import IGNORE
from proxies.trainer import _factors
from space.cost import layer_shapes
from space.design import Design
from space.mixers import Shape
from tests.gpu.proxy import GPU


class Attention(nn.Module):
    """fla's softmax attention, by SDPA."""

    def __init__(self, shape: Shape) -> None:
        from fla.modules import RotaryEmbedding

        super().__init__()
        self.dim = shape.key_dim
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(shape.width, shape.width, bias=False) for _ in range(4)
        )
        self.rotary = RotaryEmbedding(dim=shape.key_dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (project(x).unflatten(-1, (-1, self.dim)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (y.transpose(1, 2) for y in self.rotary(q, k))
        mixed = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, mixer: str, shape: Shape, mlp_dim: int, index: int) -> None:
        from fla.modules import GatedMLP, RMSNorm

        from tests.proxies.fla_on_cpu import build

        super().__init__()
        self.attn_norm, self.mlp_norm = RMSNorm(shape.width), RMSNorm(shape.width)
        self.attn = Attention(shape) if mixer == "full" else build(mixer, shape, index)
        self.mlp = GatedMLP(shape.width, intermediate_size=mlp_dim)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.attn(self.attn_norm(x))
        x = x + (mixed[0] if isinstance(mixed, tuple) else mixed)
        return x + self.mlp(self.mlp_norm(x))


class Baseline:
    """One replica made of fla's layers, from fla's own start or from `weights`, named as in `replica_state_dict`."""

    def __init__(
        self, design: Design, protocol: Protocol, seed: int = 0, weights: dict[str, Tensor] | None = None
    ) -> None:
        scale, training = protocol.scale, protocol.recall.training
        self.training, self.task = training, RecallTask(protocol.recall)
        self.embeddings = nn.Embedding(scale.vocab, scale.width)
        self.blocks = nn.ModuleList(
            Block(layer.mixer, shape, scale.mlp_dim, index)
            for index, (layer, shape) in enumerate(zip(design.layers, layer_shapes(design, scale), strict=True))
        )
        self.norm, self.head = nn.RMSNorm(scale.width), nn.Linear(scale.width, scale.vocab, bias=False)
        whole = nn.ModuleDict(
            {"embeddings": self.embeddings, "layers": self.blocks, "norm": self.norm, "lm_head": self.head}
        )
        if weights is not None:
            named = {name.removeprefix("model."): weight for name, weight in weights.items()}
            missing, extra = whole.load_state_dict(named, strict=False)
            assert not extra and not [name for name in missing if "rotary" not in name], (missing, extra)
        whole.to(GPU)
        self.parameters = list(whole.parameters())
        groups = [
            {"params": [p for p in self.parameters if p.dim() > 1], "weight_decay": training.weight_decay},
            {"params": [p for p in self.parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=training.learning_rates[0], betas=(0.9, 0.95), fused=True)
        shares = _factors(training)[:, 0].tolist()
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: shares[min(step, len(shares) - 1)]
        )
        self.stream = self.task.training(seed, training.batch, GPU)

    def logits(self, tokens: Tensor, positions: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            x = self.embeddings(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))))  # type: ignore[no-any-return]

    def step(self) -> None:
        batch = next(self.stream)
        assert batch.positions is not None
        logits = self.logits(batch.tokens, batch.positions).float()
        F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE).backward()
        nn.utils.clip_grad_norm_(self.parameters, self.training.clip)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Mean over the rungs of the sealed test."""
        figures = []
        for batch in self.task.held_out("test").values():
            batch = batch.map(lambda x: x.to(GPU))
            assert batch.positions is not None
            figures.append(self.task.metric(self.logits(batch.tokens, batch.positions)[None], batch.labels))
        return float(torch.cat(figures).mean())
