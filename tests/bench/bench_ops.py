"""Time of every chunked op, forward and backward, printed as JSON: `python -m tests.bench.bench_ops [threads]`.

Beside milliseconds, which belong to one machine, stand ratios taken within the same run: to the op's own step-by-step
recurrence and to causal softmax attention of the same shape. Rounds are interleaved so that a busy moment hits all.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from proxies.ops.delta import delta, delta_recurrence
from proxies.ops.gated_delta import gated_delta, gated_delta_recurrence
from proxies.ops.gla import gla, gla_recurrence
from proxies.ops.hgrn import hgrn, hgrn_recurrence
from proxies.ops.kda import kda, kda_recurrence
from proxies.ops.simple_decay import simple_decay, simple_decay_recurrence

BATCH, LENGTH, HEADS, DIM = 16, 256, 2, 64
PUBLISHED_MS = {"simple_decay": 15, "gla": 26, "delta": 37, "gated_delta": 35, "kda": 113, "hgrn": 62}  # at 2 threads
ALLOWED = 1.5


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)


def inputs() -> dict[str, Tensor]:
    heads = (BATCH, LENGTH, HEADS, DIM)
    return {
        "q": torch.randn(heads),
        "k": F.normalize(torch.randn(heads), dim=-1),
        "v": torch.randn(heads),
        "beta": torch.rand(heads[:3]),
        "g": F.logsigmoid(torch.randn(heads[:3])),
        "g_channel": F.logsigmoid(torch.randn(heads)) / 16,
        "x": torch.randn(BATCH, LENGTH, HEADS * DIM),
        "g_scan": F.logsigmoid(torch.randn(BATCH, LENGTH, HEADS * DIM)),
    }


def milliseconds(run: Callable[..., Tensor], leaves: list[Tensor]) -> float:
    start = time.perf_counter()
    output = run(*leaves)
    torch.autograd.grad(output, leaves, torch.ones_like(output))
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("threads", type=int, nargs="?", default=2)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    decay = torch.log1p(-(2.0 ** torch.arange(-5, -5 - HEADS, -1))).expand(1, LENGTH, HEADS)  # RetNet's, not trained

    arguments: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], str]] = {
        "simple_decay": (
            lambda q, k, v: simple_decay(q, k, v, decay),
            lambda q, k, v: simple_decay_recurrence(q, k, v, decay),
            "q k v",
        ),
        "simple_decay_trained": (simple_decay, simple_decay_recurrence, "q k v g"),
        "gla": (gla, gla_recurrence, "q k v g_channel"),
        "delta": (delta, delta_recurrence, "q k v beta"),
        "gated_delta": (gated_delta, gated_delta_recurrence, "q k v beta g"),
        "kda": (kda, kda_recurrence, "q k v g_channel beta"),
        "hgrn": (hgrn, hgrn_recurrence, "x g_scan"),
    }
    leaves = {name: x.requires_grad_() for name, x in inputs().items()}
    times: dict[str, list[float]] = {name: [] for name in [*arguments, "attention"]}
    for _ in range(options.rounds):
        times["attention"].append(milliseconds(attention, [leaves[n] for n in "qkv"]))
        for name, (run, _, needs) in arguments.items():
            times[name].append(milliseconds(run, [leaves[n] for n in needs.split()]))

    def typical(values: list[float]) -> float:
        return sorted(values)[len(values) // 4]

    softmax = typical(times["attention"])
    report: dict[str, object] = {
        "shape": f"B{BATCH}-T{LENGTH}-H{HEADS}-D{DIM}",
        "threads": options.threads,
        "attention_ms": round(softmax, 1),
    }
    for name, (_, recurrence, needs) in arguments.items():
        ms = typical(times[name])
        loop_ms = min(milliseconds(recurrence, [leaves[n] for n in needs.split()]) for _ in range(2))
        report[name] = {
            "ms": round(ms, 1),
            "published_ms": PUBLISHED_MS.get(name),
            "within": ms <= ALLOWED * PUBLISHED_MS[name] if name in PUBLISHED_MS else None,
            "to_recurrence": round(ms / loop_ms, 3),
            "to_attention": round(ms / softmax, 2),
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
