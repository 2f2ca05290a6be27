"""Replica-steps a second against an eager loop over fla's layers, as JSON: `python -m tests.gpu.bench_engine`.

The baseline is `tests.gpu.baseline`, one replica at a time. Both are timed in this process, with tuned kernels. Of the
largest stack it also says where the time of a step goes, `ms_by_kind` and `slowest`, and `share_of_floor`, how
near a step is to the least it can take.
"""

import argparse
import json
import re
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from proxies.ops.kernels import KERNELS, choose
from proxies.stacks import free
from space.design import Design
from tests.gpu import floor
from tests.gpu.baseline import Baseline
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
        step = Baseline(Design.parse(text), proxy((1e-3,), STEPS)).step
        first = seconds(step)
        seconds(lambda: [step() for _ in range(10)])
        base_ms = seconds(lambda: [step() for _ in range(STEPS // 2)]) / (STEPS // 2) * 1e3
        report = {"baseline_ms": round(base_ms, 2), "baseline_first_s": round(first, 1)}
    for size in stacks:
        free(GPU)
        torch.cuda.reset_peak_memory_stats()
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
