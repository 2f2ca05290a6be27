"""A training step as one CUDA graph for each shape of batch, so that it costs one launch instead of hundreds."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from proxies.ops import tuning

_WARM_UP = 3  # calls that run as written first: kernels are tuned, pieces compiled, workspaces made


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One for all of a device: matrix products keep a workspace of 32 MiB for each stream that ever made one."""
    return torch.cuda.Stream(device)


class Graphed:
    """`function` of tensors of fixed shapes, changing state in place: run as written at first, then captured once and
    replayed. Every call counts, none is a rehearsal. What it changes must keep its address, and it may not wait for
    the GPU. Those with one `pool` use the same memory in turns, so nothing may be left in it between two calls."""

    def __init__(self, function: Callable[..., None], pool: Any) -> None:
        self.function, self.pool = function, pool
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []

    def __call__(self, *inputs: Tensor) -> None:
        self.calls += 1
        if self.calls <= _WARM_UP:
            side = _side_stream(torch.cuda.current_device())
            side.wait_stream(torch.cuda.current_stream())
            with tuning.turn(side.device), torch.cuda.stream(side):
                self.function(*inputs)
            torch.cuda.current_stream().wait_stream(side)
            return
        if self.graph is None:
            self.inputs = [x.clone() for x in inputs]
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, pool=self.pool):
                self.function(*self.inputs)
        torch._foreach_copy_(self.inputs, list(inputs))
        self.graph.replay()


class Graphs:
    """`function` of tensors of any shapes: `Graphed` for each combination of shapes, in one pool.

    Later graphs find room in what earlier ones took only if they need no more, so the largest is best captured first.
    """

    def __init__(self, function: Callable[..., None], pool: Any) -> None:
        self.function, self.pool = function, pool
        self.by_shapes: dict[tuple[torch.Size, ...], Graphed] = {}

    def __call__(self, *inputs: Tensor) -> None:
        shapes = tuple(x.shape for x in inputs)
        if shapes not in self.by_shapes:
            self.by_shapes[shapes] = Graphed(self.function, self.pool)
        self.by_shapes[shapes](*inputs)
