"""Softmax attention over everything before, or over a window: fla's Attention, without a bias."""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from proxies.layers import Linear, rotate
from proxies.mixers.base import Kept, Mixer, merge_heads, split_heads
from proxies.ops.kernels import SOFTMAX
from space.mixers import Shape


class Attention(Mixer):
    """Grouped-query attention; a window of W lets a token see itself and the W - 1 before."""

    op = SOFTMAX
    kept = Kept(key=3, value=2, head=4)

    def __init__(self, shape: Shape, num_replicas: int) -> None:
        super().__init__(shape, num_replicas)
        self.q_proj = self.linear(shape.keys)
        self.k_proj = self.linear(shape.kv_heads * shape.key_dim)
        self.v_proj = self.linear(shape.kv_heads * shape.key_dim)
        self.o_proj = Linear(num_replicas, shape.keys, shape.width)

    def forward(self, x_KBTD: Tensor) -> Tensor:
        q, k, v = (split_heads(y, self.shape.key_dim) for y in self.project(x_KBTD, "qkv"))
        if self.shape.rope:
            q, k = rotate(q), rotate(k)
        length, window = q.shape[1], self.shape.window
        mask = _window_mask(length, window, q.device) if window is not None and window < length else None
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=mask is None,
            enable_gqa=self.shape.kv_heads != self.shape.heads,
        )
        return self.o_proj(merge_heads(mixed.transpose(1, 2), self.num_replicas))


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # a mask first made while evaluating must serve training too
def _window_mask(length: int, window: int, device: torch.device) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).tril().triu(1 - window)
