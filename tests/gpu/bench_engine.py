"""Replica-steps a second against an eager loop over fla's layers, as JSON: `python -m tests.gpu.bench_engine`.

The baseline trains one replica at a time with the same data, the fused AdamW of torch, bfloat16 autocast, and softmax
attention by SDPA. Both are timed in this process, after the kernels are tuned. `kernels_ms` says where the time of one
step of the largest stack goes.
"""

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from proxies.ops.kernels import KERNELS, choose
from proxies.protocol import Protocol
from proxies.tasks import RecallTask
from proxies.tasks.base import IGNORE
from space.cost import layer_shapes
from space.design import Design
from space.mixers import Shape
from tests.gpu.proxy import GPU, proxy, trainer

DESIGNS = {"full": "4xfull"} | {
    name: f"4x{name}+full@3" for name in ("deltanet", "gla", "hgrn2", "gated_deltanet", "retnet")
}
STEPS = 100


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


def baseline(design: Design, protocol: Protocol) -> Callable[[], None]:
    """One eager training step of one replica made of fla's layers."""
    scale, training = protocol.scale, protocol.recall.training
    embeddings = nn.Embedding(scale.vocab, scale.width)
    blocks = [
        Block(layer.mixer, shape, scale.mlp_dim, index)
        for index, (layer, shape) in enumerate(zip(design.layers, layer_shapes(design, scale), strict=True))
    ]
    head = nn.Sequential(nn.RMSNorm(scale.width), nn.Linear(scale.width, scale.vocab, bias=False))
    model = nn.ModuleList([embeddings, *blocks, head]).to(GPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    stream = RecallTask(protocol.recall).training(0, training.batch, GPU)

    def step() -> None:
        batch = next(stream)
        assert batch.positions is not None
        with torch.autocast("cuda", torch.bfloat16):
            x = embeddings(batch.tokens)
            for block in blocks:
                x = block(x)
            logits = head(x.gather(1, batch.positions[..., None].expand(-1, -1, x.shape[-1])))
        F.cross_entropy(logits.float().flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE).backward()
        nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    return step


def seconds(run: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def kernels_ms(run: Callable[[], Any], steps: int) -> dict[str, float]:
    """Milliseconds a step of the kernels that take most."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    top = {event.key[:70]: round(event.self_device_time_total / steps / 1e3, 3) for event in events[:16]}
    return {"all": round(total / steps / 1e3, 3), "launches": sum(e.count for e in events) / steps} | top


def compare(name: str, stacks: list[int]) -> dict[str, Any]:
    text = DESIGNS[name]
    rates = [1e-3 * 0.8**k for k in range(max(stacks))]
    step = baseline(Design.parse(text), proxy((1e-3,), STEPS))
    first = seconds(step)
    seconds(lambda: [step() for _ in range(10)])
    base_ms = seconds(lambda: [step() for _ in range(STEPS // 2)]) / (STEPS // 2) * 1e3
    report: dict[str, Any] = {"baseline_ms": round(base_ms, 2), "baseline_first_s": round(first, 1)}
    for size in stacks:
        ours = trainer(text, tuple(rates[:size]), 3 * STEPS)
        first = seconds(lambda: ours.advance(20))  # noqa: B023
        ms = seconds(lambda: ours.advance(20 + 2 * STEPS)) / (2 * STEPS) * 1e3  # noqa: B023
        report[f"K{size}"] = {
            "step_ms": round(ms, 2), "times_baseline": round(size * base_ms / ms, 1), "first_s": round(first, 1),
            "memory_mb": torch.cuda.max_memory_allocated() >> 20, "loss": round(float(ours.losses_K.mean()), 3),
        }  # fmt: skip
        if size == max(stacks):
            report["kernels_ms"] = kernels_ms(lambda: ours.advance(40 + 2 * STEPS), 20)  # noqa: B023
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("designs", nargs="*", default=list(DESIGNS), help=f"of {', '.join(DESIGNS)}")
    parser.add_argument("--stacks", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    report: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "kernels": {op: choose(op, GPU).reason for op in KERNELS},
    }  # fmt: skip
    for name in options.designs:
        report[name] = compare(name, options.stacks)
        print(name, json.dumps(report[name]), flush=True)
    for size in options.stacks:
        times = [report[name][f"K{size}"]["times_baseline"] for name in options.designs]
        report[f"K{size}"] = {"median": median(times), "worst": min(times)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
