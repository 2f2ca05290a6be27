"""A training step as one CUDA graph, so that it costs one launch instead of hundreds."""

from collections.abc import Callable

import torch
from torch import Tensor

from proxies.ops import tuning

_WARM_UP = 3  # calls that run as written first: kernels are tuned, pieces compiled, workspaces made


class Graphed:
    """`function` of tensors of fixed shapes, changing state in place: run as written at first, then captured once and
    replayed. Every call counts, none is a rehearsal. What it changes must keep its address, and it may not wait for
    the GPU."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []

    def __call__(self, *inputs: Tensor) -> None:
        self.calls += 1
        if self.calls <= _WARM_UP:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with tuning.turn(side.device), torch.cuda.stream(side):
                self.function(*inputs)
            torch.cuda.current_stream().wait_stream(side)
            return
        if self.graph is None:
            self.inputs = [x.clone() for x in inputs]
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.function(*self.inputs)
        torch._foreach_copy_(self.inputs, list(inputs))
        self.graph.replay()
