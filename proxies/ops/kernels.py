"""Which form of a recurrence runs where: fla's Triton kernel on a GPU where it is right, plain torch everywhere else.

fla is imported at the first use of a kernel, and only the kernel's own module: a CPU never pays for it.
"""

import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from proxies.ops import tuning

KERNELS = {  # op: module and function of fla
    "simple_decay": ("fla.ops.simple_gla", "chunk_simple_gla"),
    "gla": ("fla.ops.gla", "chunk_gla"),
    "delta": ("fla.ops.delta_rule", "chunk_delta_rule"),
    "gated_delta": ("fla.ops.gated_delta_rule", "chunk_gated_delta_rule"),
    "hgrn": ("fla.ops.hgrn", "chunk_hgrn"),
    "kda": ("fla.ops.kda", "chunk_kda"),
}
OPTIONS = {  # of a function: KDA's products on tensor cores, for decays that the mixer bounds, and nothing made twice
    "kda": {"safe_gate": True, "disable_recompute": True},
}
SOFTMAX = "softmax"  # the op of attention, which torch itself serves
SCALAR_GATES = {"simple_decay", "gated_delta"}
KEY_DIMS, VALUE_DIMS = (16, 256), (16, 512)  # sizes of one head: a tensor core takes 16 at least, the delta rules 256
LARGEST_GRID = 65535  # of CUDA, on the axis where the kernels lay out sequences times heads
HOPPER = 9  # its major compute capability
WRONG_TRITON = ((3, 4, 0), (3, 7, 1))  # from, up to: wrong gradients of scalar gates on Hopper


class Choice(NamedTuple):
    """The kernel that serves an op on a device, None for the torch form, and why."""

    kernel: Callable[..., Any] | None
    reason: str


@cache
def choose(op: str, device: torch.device) -> Choice:
    """What serves `op`, SOFTMAX or one of KERNELS, on `device`."""
    if op == SOFTMAX:
        return Choice(None, "torch's scaled_dot_product_attention")
    if device.type != "cuda":
        return Choice(None, f"torch form: no kernel for {device.type}")
    module, name = KERNELS[op]
    try:
        kernel = partial(getattr(_import(module), name), **OPTIONS.get(op, {}))
        triton = import_module("triton").__version__
    except ImportError as error:
        return Choice(None, f"torch form: flash-linear-attention cannot be imported ({error})")
    first_wrong, first_right = WRONG_TRITON
    release = tuple(int(part) for part in triton.split("+")[0].split(".")[:3])
    hopper = torch.cuda.get_device_capability(device)[0] == HOPPER
    if op in SCALAR_GATES and hopper and first_wrong <= release < first_right:
        return Choice(None, f"torch form: Triton {triton} computes wrong gradients on Hopper, 3.7.1 does not")
    tuning.install(device)
    return Choice(kernel, f"fla's {name}, Triton {triton}, {tuning.in_words(device)}")


def require(device: torch.device) -> None:
    """Raises RuntimeError saying what to install when torch cannot use `device`."""
    if device.type == "cuda" and not torch.cuda.is_available():
        build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise RuntimeError(
            f"torch {torch.__version__}, {build}, sees no GPU: install torch's CUDA build and plait[gpu] there, "
            "with a driver that serves it (nvidia-smi)"
        )


def check(op: str, *, heads: int, key_dim: int, value_dim: int, sequences: int) -> None:
    """Raises ValueError for what the kernel of `op` cannot take: sizes of one head, and `sequences` at a time.

    Any length is taken: it is fla's layers that turn to another kernel up to 64 tokens, and they are not used.
    """
    if op in (SOFTMAX, "hgrn"):
        sizes, heads = [], 1
    else:
        sizes = [("key head size", key_dim, *KEY_DIMS), ("value head size", value_dim, *VALUE_DIMS)]
    for name, size, low, high in sizes:
        if size % 16 or not low <= size <= high:
            raise ValueError(f"{op} {name} = {size}: must be a multiple of 16 in {low}..{high} on a GPU")
    if sequences * heads > LARGEST_GRID:
        raise ValueError(
            f"{op} sequences = {sequences}: must be in 1..{LARGEST_GRID // heads} with {heads} heads on a GPU"
        )


def _import(module: str) -> Any:
    """A module of fla without the rest of fla: its packages import every layer and model, and so transformers, which
    takes four times as long. The packages stay bare in this process; their submodules can be imported."""
    for package in ("fla", "fla.ops"):
        spec = None if package in sys.modules else find_spec(package)
        if spec is not None:
            bare = sys.modules[package] = module_from_spec(spec)
            bare.__dict__["__version__"] = version("fla-core")
    return import_module(module)


def run(op: str, chunked: Callable[..., Tensor], **inputs: Tensor) -> Tensor:
    """`op` of `inputs`, which are named as in fla and share a batch, by the kernel or by `chunked`, its torch form.

    A kernel takes everything but the decays `g` in the dtype of the first input. The torch form runs in float32.
    """
    first = next(iter(inputs.values()))
    if not first.is_cuda:
        return chunked(**inputs)
    kernel = choose(op, first.device).kernel
    if kernel is None:
        return chunked(**{name: x.float() for name, x in inputs.items()}).to(first.dtype)
    whole = {name: x.expand(len(first), *x.shape[1:]) for name, x in inputs.items()}
    output, _ = kernel(**{name: x if name == "g" else x.to(first.dtype) for name, x in whole.items()})
    return output
