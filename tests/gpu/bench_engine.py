"""Replica-steps a second against an eager loop over fla's layers, as JSON: `python -m tests.gpu.bench_engine`.

The baseline trains one replica at a time with the same data, the fused AdamW of torch, bfloat16 autocast, and softmax
attention by SDPA. Both are timed in this process, after the kernels are tuned. Of the largest stack it also says where
the time of a step goes, `ms_by_kind` and `slowest`, and `share_of_floor`, how near a step is to the least it can take.
"""

import argparse
import json
import re
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
from tests.gpu import floor
from tests.gpu.proxy import GPU, proxy, trainer

DESIGNS = {"full": "4xfull"} | {
    name: f"4x{name}+full@3" for name in ("deltanet", "gla", "hgrn2", "gated_deltanet", "retnet", "kda")
}
KINDS = {  # of kernels, by their names, in this order
    "matrix products": r"nvjet|cutlass|gemm|splitK",
    "attention": r"sdpa|flash|cudnn",
    "our kernels": r"^_(norm|conv)_(for|back)ward",
    "compiled pieces": r"^triton_",
    "recurrence": r"chunk|recompute|prepare|merge_16x16|kkt|solve|cumsum|hgrn|kda|gate",
    "copies and casts": r"copy|Memcpy|Memset|CatArray|Fill",
    "sums": r"reduce_kernel|Functor_add",
    "embedding": r"embedding|radix|Radix|scatter|segment|compute_grad_weight|gather",
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


def profile(run: Callable[[], Any], steps: int) -> dict[str, Any]:
    """Where the milliseconds of a step go."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    ms = {event.key: event.self_device_time_total / steps / 1e3 for event in profiler.key_averages()}
    kinds: dict[str, float] = {}
    for name, part in ms.items():
        kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "other")
        kinds[kind] = kinds.get(kind, 0.0) + part
    slowest = sorted(ms, key=lambda name: -ms[name])[:12]
    return {
        "launches": sum(event.count for event in profiler.key_averages()) / steps,
        "ms_by_kind": {kind: round(part, 3) for kind, part in sorted(kinds.items(), key=lambda item: -item[1])},
        "slowest": {name[:70]: round(ms[name], 3) for name in slowest},
    }


def compare(name: str, stacks: list[int], rates_of_gpu: floor.Rates, only_ours: bool) -> dict[str, Any]:
    text = DESIGNS[name]
    rates = [1e-3 * 0.8**k for k in range(max(stacks))]
    report: dict[str, Any] = {}
    if not only_ours:
        step = baseline(Design.parse(text), proxy((1e-3,), STEPS))
        first = seconds(step)
        seconds(lambda: [step() for _ in range(10)])
        base_ms = seconds(lambda: [step() for _ in range(STEPS // 2)]) / (STEPS // 2) * 1e3
        report = {"baseline_ms": round(base_ms, 2), "baseline_first_s": round(first, 1)}
    for size in stacks:
        ours = trainer(text, tuple(rates[:size]), 3 * STEPS)
        first = seconds(lambda: ours.advance(20))  # noqa: B023
        ms = seconds(lambda: ours.advance(20 + 2 * STEPS)) / (2 * STEPS) * 1e3  # noqa: B023
        least = floor.floor_ms(Design.parse(text), proxy((1e-3,), STEPS), size, rates_of_gpu)
        report[f"K{size}"] = {
            "step_ms": round(ms, 3), "first_s": round(first, 1), "floor_ms": round(least, 3),
            "share_of_floor": round(least / ms, 3), "memory_mb": torch.cuda.max_memory_allocated() >> 20,
            "loss": round(float(ours.losses_K.mean()), 3),
        }  # fmt: skip
        if not only_ours:
            report[f"K{size}"]["times_baseline"] = round(size * base_ms / ms, 1)
        if size == max(stacks):
            report |= profile(lambda: ours.advance(40 + 2 * STEPS), 20)  # noqa: B023
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("designs", nargs="*", default=list(DESIGNS), help=f"of {', '.join(DESIGNS)}")
    parser.add_argument("--stacks", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--only-ours", action="store_true", help="leave the baseline out")
    options = parser.parse_args()
    rates = floor.measure()
    report: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "bandwidth_tb_s": round(rates.bandwidth / 1e12, 2), "bf16_tflop_s": round(rates.arithmetic / 1e12),
        "kernels": {op: choose(op, GPU).reason for op in KERNELS},
    }  # fmt: skip
    for name in options.designs:
        report[name] = compare(name, options.stacks, rates, options.only_ours)
        print(name, json.dumps(report[name]), flush=True)
    for size in [] if options.only_ours else options.stacks:
        times = [report[name][f"K{size}"]["times_baseline"] for name in options.designs]
        report[f"K{size}"] = {"median": median(times), "worst": min(times)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
