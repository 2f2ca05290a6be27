"""Tile sizes of fla's kernels, chosen once and shipped: a fresh worker on a known GPU never tunes.

`python -m proxies.ops.tuning FILE [OP ...]` makes the choices on this machine's GPU, for proxies' head sizes, of all
ops or some: most of the time goes into compiling every variant, on all cores.
Triton would time every variant of every kernel again in each new environment, and for each batch size: over a minute a
mixer. A choice here holds for all batches and numbers of heads. On other GPUs Triton tunes at first use, one process at
a time, and keeps its result in its cache.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from proxies import watchdog

HEAD_SIZES = {  # of keys and values, as proxies with heads of 32 and of 64 have them
    "simple_decay": ((32, 32), (32, 64), (64, 64), (64, 128), (128, 64), (128, 128)),
    "gla": ((16, 32), (32, 32), (32, 64), (64, 64)),
    "delta": ((32, 32), (64, 64)),
    "gated_delta": ((32, 32), (64, 64)),
    "kda": ((32, 32), (64, 64)),
}
CHANNELS = (32, 64, 128, 256)  # of HGRN
ARGUMENTS = {
    "simple_decay": "q k v g", "gla": "q k v g_channel", "delta": "q k v beta", "gated_delta": "q k v beta g",
    "kda": "q k v beta g_channel", "hgrn": "x g_scan",
}  # fmt: skip
_BATCH, _LENGTH, _HEADS = 256, 256, 2
_WAIT = 10.0  # seconds between two signs of life of a process that waits for its turn
_IGNORED = {"B", "H", "HV"}  # keys of Triton's tuning that leave the best tiles as they are
_SIZES = re.compile(r"\b(K|V|BK|BV|S|D)=(\d+)")  # keys that grow with a head
_FILES = Path(__file__).parent / "tiles"


def tiles_for(device: torch.device) -> Path | None:
    """The shipped choices for this GPU and the fla that is installed."""
    file = _FILES / f"sm{''.join(map(str, torch.cuda.get_device_capability(device)))}.json"
    return file if file.exists() and _read(file)["flash-linear-attention"] == version("fla-core") else None


def in_words(device: torch.device) -> str:
    """Where the tile sizes on this device come from."""
    return "shipped tiles" if tiles_for(device) else "tuned at first use"


def install(device: torch.device) -> None:
    """Gives the kernels of fla imported so far the shipped choices, if there are any for `device`."""
    file = tiles_for(device)
    if file is not None:
        for name, tuner in _tuners():
            if not isinstance(tuner.cache, _Tiles):
                tuner.cache = _Tiles(tuner, _read(file)["kernels"].get(name, {}))


def turn(device: torch.device) -> AbstractContextManager[Any]:
    """Held while kernels may be tuned: processes of one machine tune after each other, and the later ones find the
    results. Nothing to wait for where choices are shipped."""
    if device.type != "cuda" or tiles_for(device):
        return nullcontext()
    folder = Path.home() / ".triton"
    folder.mkdir(parents=True, exist_ok=True)
    return _patient(FileLock(folder / "plait-tuning.lock"))


@contextmanager
def _patient(lock: FileLock) -> Iterator[None]:
    """The lock, for which this process may wait as long as others need it: waiting is not hanging."""
    while not lock.is_locked:
        with suppress(Timeout):
            lock.acquire(timeout=_WAIT)
        watchdog.beat()
    try:
        yield
    finally:
        lock.release()


class _Tiles(dict[tuple[Any, ...], Any]):
    """What a tuner of Triton remembers, with the shipped choices behind it: for other sizes those of the nearest."""

    exact = False  # whether other sizes are left to Triton, as while choices are made

    def __init__(self, tuner: Any, chosen: dict[str, list[Any]]) -> None:
        super().__init__(tuner.cache)
        self.tuner, self.chosen = tuner, chosen

    def __contains__(self, key: object) -> bool:
        if not super().__contains__(key):
            name = _name(self.tuner, key)  # type: ignore[arg-type]
            wanted = self.chosen.get(name) if self.exact else _nearest(self.chosen, name)
            for config in self.tuner.configs:
                if _tile(config) == wanted:
                    self[key] = config  # type: ignore[index]
        return super().__contains__(key)


def _nearest(chosen: dict[str, list[Any]], name: str) -> list[Any] | None:
    """The tile for the sizes in `name`, or for those least far from them by their logarithm, all else being equal."""

    def distance(other: str) -> float:
        sizes = zip(_SIZES.findall(name), _SIZES.findall(other), strict=True)
        return sum(abs(math.log2(int(wanted) / int(known))) for (_, wanted), (_, known) in sizes)

    alike = [other for other in chosen if _SIZES.sub("", other) == _SIZES.sub("", name)]
    return chosen[min(alike, key=distance)] if alike else None


def _name(tuner: Any, key: tuple[Any, ...]) -> str:
    """Triton's tuning key as text, without what is ignored: `K=64 V=64 BT=64 bfloat16 float32`."""
    named = [f"{name}={value}" for name, value in zip(tuner.keys, key, strict=False) if name not in _IGNORED]
    return " ".join([*named, *(str(dtype).removeprefix("torch.") for dtype in key[len(tuner.keys) :])])


def _tile(config: Any) -> list[Any]:
    return [config.kwargs, config.num_warps, config.num_stages]


def _tuners() -> Iterator[tuple[str, Any]]:
    """The kernels of fla that Triton tunes, by name."""
    from triton.runtime.autotuner import Autotuner

    for module in [module for name, module in sys.modules.items() if name.startswith("fla.")]:
        for item in list(vars(module).values()):
            while item is not None and not isinstance(item, Autotuner) and type(item).__module__.startswith("triton."):
                item = getattr(item, "fn", None)
            if isinstance(item, Autotuner) and item.base_fn.__module__ == module.__name__:
                yield f"{module.__name__.removeprefix('fla.')}.{item.base_fn.__name__}", item


@cache
def _read(file: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(file.read_text())
    return made


def _shapes(op: str) -> list[dict[str, tuple[int, ...]]]:
    """The inputs' shapes for each size of `op`."""
    rows = (_BATCH, _LENGTH)
    if op == "hgrn":
        return [{name: (*rows, channels) for name in ARGUMENTS[op].split()} for channels in CHANNELS]
    heads = (*rows, _HEADS)
    special = [{"v": (*heads, value), "g": heads, "beta": heads, "key": (*heads, key)} for key, value in HEAD_SIZES[op]]
    return [{name: sizes.get(name, sizes["key"]) for name in ARGUMENTS[op].split()} for sizes in special]


def _exercise(op: str, index: int) -> None:
    """An op forward and backward at one of its sizes, so that its kernels are tuned."""
    from proxies.ops import kernels

    kernels.tuning._Tiles.exact = True  # theirs: this module may be running as a second copy, __main__
    device = torch.device("cuda")
    kernel = kernels.choose(op, device).kernel
    assert kernel is not None, kernels.choose(op, device).reason
    inputs: dict[str, Tensor] = {}
    for name, shape in _shapes(op)[index].items():
        x = torch.rand(shape, device=device)
        decay = name.startswith("g")
        x = -0.1 * x if decay else x * shape[-1] ** -0.5
        x = x if decay else x.bfloat16()
        inputs["g" if decay else name] = x.requires_grad_()
    kernel(**inputs)[0].sum().backward()
    torch.cuda.synchronize()


def _compile(op: str, index: int, part: int, parts: int) -> None:
    """Compiles every `parts`-th variant of every kernel into Triton's cache, without timing any."""
    from triton.runtime.autotuner import Autotuner

    pruned = Autotuner.prune_configs

    def prune(tuner: Any, kwargs: dict[str, Any]) -> list[Any]:
        configs = pruned(tuner, kwargs)
        return configs[part % len(configs) :: parts]

    def bench(tuner: Any, *args: Any, config: Any, **kwargs: Any) -> list[float]:
        try:
            tuner.fn.run(*args, **{**kwargs, **config.all_kwargs(), "warmup": True})
        except Exception:  # too large a tile: the tuner that times will see it too
            return [float("inf")] * 3
        return [0.0] * 3

    Autotuner.prune_configs, Autotuner._bench = prune, bench
    Autotuner.check_disk_cache = lambda tuner, key, configs, benchmark: benchmark()
    _exercise(op, index)


def _time(op: str, index: int, file: Path) -> None:
    """Writes the choices for one size of an op into `file`, among variants that are not in its list of broken ones.

    A variant with an illegal access to memory ends the process; it is in `trying` of the file then.
    """
    from triton.runtime.autotuner import Autotuner

    said: dict[str, Any] = json.loads(file.read_text())
    pruned, timed = Autotuner.prune_configs, Autotuner._bench

    def label(tuner: Any, config: Any) -> list[Any]:
        return [tuner.base_fn.__name__, *_tile(config)]

    def prune(tuner: Any, kwargs: dict[str, Any]) -> list[Any]:
        return [config for config in pruned(tuner, kwargs) if label(tuner, config) not in said["broken"]]

    def bench(tuner: Any, *args: Any, config: Any, **kwargs: Any) -> Any:
        file.write_text(json.dumps(said | {"trying": label(tuner, config)}))
        found = timed(tuner, *args, config=config, **kwargs)
        torch.cuda.synchronize()
        return found

    Autotuner.prune_configs, Autotuner._bench = prune, bench
    with FileLock(file.with_name("gpu.lock")):  # one at a time, however many are ready
        _exercise(op, index)
    chosen = {
        name: {_name(tuner, key): _tile(config) for key, config in tuner.cache.items()} for name, tuner in _tuners()
    }
    file.write_text(json.dumps(said | {"trying": None, "chosen": chosen}))


def _run(arguments: list[str]) -> bool:
    """Runs this module with these arguments; whether it came to its end."""
    command = [sys.executable, "-m", "proxies.ops.tuning", *arguments]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def _choices(op: str, index: str, folder: str) -> dict[str, dict[str, list[Any]]]:
    """The choices for one size, by kernel; a variant that ends the process is left out."""
    file = Path(folder) / f"{op}-{index}.json"
    broken: list[Any] = []
    while True:
        file.write_text(json.dumps({"broken": broken}))
        whole = _run(["time", op, index, str(file)])
        said = json.loads(file.read_text())
        if whole:
            chosen: dict[str, dict[str, list[Any]]] = said["chosen"]
            return chosen
        if not said.get("trying"):
            raise RuntimeError(f"{op} {index}: ended before it timed a kernel")
        print(f"{op} {index}: {said['trying']} ends the process: left out", flush=True)
        broken.append(said["trying"])


def main(file: str, ops: Sequence[str] = ()) -> None:
    """Makes the choices for this machine's GPU: variants are compiled side by side, then timed one after the other.

    What is shipped for this GPU already stays as it is. `file` is written after every size, so a stop costs the rest.
    """
    for op in ops:
        if op not in ARGUMENTS:
            raise SystemExit(f"op = {op!r}: must be one of {', '.join(ARGUMENTS)}")
    started = time.monotonic()
    sizes = [(op, str(index)) for op in ops or ARGUMENTS for index in range(len(_shapes(op)))]
    parts = -(-2 * (os.cpu_count() or 1) // len(sizes))  # two processes a core: they start and compile in turns
    made = {"gpu": torch.cuda.get_device_name(), "triton": version("triton")}
    made |= {"flash-linear-attention": version("fla-core"), "torch": torch.__version__}
    shipped = tiles_for(torch.device("cuda"))
    kernels: dict[str, dict[str, list[Any]]] = dict(_read(shipped)["kernels"]) if shipped else {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(sizes) * parts) as pool:
        list(pool.map(_run, (["compile", *size, str(part), str(parts)] for size in sizes for part in range(parts))))
        print(f"compiled in {time.monotonic() - started:.0f} s", flush=True)
        for timed in as_completed([pool.submit(_choices, op, index, folder) for op, index in sizes]):
            for name, chosen in timed.result().items():
                kernels.setdefault(name, {}).update(chosen)
            whole = {name: dict(sorted(kernels[name].items())) for name in sorted(kernels) if kernels[name]}
            Path(file).write_text(json.dumps(made | {"kernels": whole}, indent=1) + "\n")
    number = sum(map(len, kernels.values()))
    print(f"{number} choices for {len(whole)} kernels in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["compile", op, index, part, parts]:
            _compile(op, int(index), int(part), int(parts))
        case ["time", op, index, file]:
            _time(op, int(index), Path(file))
        case [file, *ops]:
            main(file, ops)
