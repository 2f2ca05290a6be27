"""The small pieces between the matrix products: on a GPU each is compiled into one pass over memory.

They are compiled in this process, not in Inductor's pool of processes, which forks anew when it was idle for a minute:
a worker was seen to wait for ever, by the state of its threads for such a pool.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
_SHAPES = 64  # versions of one piece that may be compiled, one a shape; torch's default of 8 is soon passed


def fused(function: Callable[..., Result]) -> Callable[..., Result]:
    """`function`, compiled where it trains on a GPU. Elsewhere, and while evaluating, it runs as it is written."""

    @wraps(function)
    def run(x: Tensor, *rest: Any) -> Result:
        piece = _compiled(function) if x.is_cuda and torch.is_grad_enabled() else function
        return piece(x, *rest)

    return run


@cache
def _compiled(function: Callable[..., Result]) -> Callable[..., Result]:
    torch._dynamo.config.recompile_limit = _SHAPES
    torch._inductor.config.compile_threads = 1
    return torch.compile(function, dynamic=False)
