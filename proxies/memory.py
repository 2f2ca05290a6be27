"""How much memory a replica needs while it trains on a GPU, and so how many fit beside each other.

An estimate from shapes alone: parameters, gradients and Adam's moments; the activations kept for the
backward pass by kind of layer; logits where there are labels; what the widest layer needs in passing. It is made to err
on the high side; tests/gpu compares it with what is allocated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from proxies.mixers import MIXERS
from proxies.mixers.base import CHUNK
from proxies.ops.kernels import LARGEST_GRID, SOFTMAX, check, choose
from proxies.protocol import Training
from proxies.tasks import Task
from proxies.trainer import EVALUATION_ROWS
from space.cost import cost, layer_shapes
from space.design import Design
from space.mixers import Shape
from space.scale import Scale

SAFETY = 1.25  # bytes planned for each byte estimated: fragments, rounding, what was not counted
OVERHEAD = 1 << 30  # compiled kernels, workspaces of the libraries, batches of data
_TORCH_FORM = 4  # times as much: float32, and a matrix a chunk at every stage


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Examples in one pass, their tokens, and the labels of each."""

    batch: int
    length: int
    labels: int


@dataclass(frozen=True)
class Need:
    """Bytes of one replica: `kept` as long as it is trained at all, `passing` while it takes steps or is scored, which
    use the same memory in turns.

    `most` is how many replicas the grids of the kernels take.
    """

    kept: int
    passing: int
    most: int

    @property
    def whole(self) -> int:
        return self.kept + self.passing


def estimate(design: Design, scale: Scale, training: Sizes, scoring: Sequence[Sizes], device: torch.device) -> Need:
    """What one replica of `design` needs at `scale` to train and to be scored in passes of these sizes."""
    shapes = layer_shapes(design, scale)
    parameters = cost(design, scale).parameters
    kept = (4 + 2 + 2 + 8) * parameters  # masters and their copies, gradients, two moments
    layers = [
        _layer_bytes(layer.mixer, shape, scale, training, device)
        for layer, shape in zip(design.layers, shapes, strict=True)
    ]
    step = 6 * parameters + sum(layers) + max(layers) + _ends_bytes(scale, training)
    scores = [
        max(
            _layer_bytes(layer.mixer, shape, scale, sizes, device)
            for layer, shape in zip(design.layers, shapes, strict=True)
        )
        // 4  # nothing is kept
        + _ends_bytes(scale, sizes)
        for sizes in scoring
    ]
    rows = max(sizes.batch for sizes in (training, *scoring))
    most = LARGEST_GRID // (rows * max(shape.heads for shape in shapes))
    return Need(kept, max(step, *scores), most)


def need(design: Design, scale: Scale, tasks: Sequence[Task], training: Training, device: torch.device) -> Need:
    """What a replica needs that trains on the first of `tasks` and is scored on all of them.

    Raises ValueError for what the kernels of its mixers cannot take.
    """
    example = next(tasks[0].training(0, training.batch, device))  # a task's first batch is its largest
    step = Sizes(batch=training.batch, length=example.tokens.shape[1], labels=example.labels.shape[1])
    scoring = [
        Sizes(batch=min(EVALUATION_ROWS, len(held.tokens)), length=held.tokens.shape[1], labels=held.labels.shape[1])
        for task in tasks
        for held in task.held_out("validation").values()
    ]
    sequences = max(sizes.batch for sizes in (step, *scoring))
    for layer, shape in zip(design.layers, layer_shapes(design, scale), strict=True):
        sizes = {"heads": shape.heads, "key_dim": shape.key_dim, "value_dim": shape.value_dim}
        check(MIXERS[layer.mixer].op, **sizes, sequences=sequences)
    return estimate(design, scale, step, scoring, device)


def _layer_bytes(mixer: str, shape: Shape, scale: Scale, sizes: Sizes, device: torch.device) -> int:
    """What one layer keeps for its backward pass: two norms and their sums, the mixer, the MLP."""
    op, kept = MIXERS[mixer].op, MIXERS[mixer].kept
    mixing = 2 * (kept.key * shape.keys + kept.value * shape.values + kept.head * shape.heads)
    if kept.key and op != SOFTMAX:
        mixing += 4 * shape.keys * shape.value_dim // CHUNK  # states and their gradients
    if mixer == "window" and shape.kv_heads != shape.heads:
        mixing += 8 * sizes.length * shape.heads  # such a mask and grouped heads: torch writes the scores out
    if choose(op, device).kernel is None and op != SOFTMAX:
        mixing *= _TORCH_FORM
    return sizes.batch * sizes.length * (8 * scale.width + 6 * scale.mlp_dim + mixing)


def _ends_bytes(scale: Scale, sizes: Sizes) -> int:
    """Embeddings and last norm; logits, their float32 copy, and the gradients of both."""
    return sizes.batch * (sizes.length * (4 * scale.width + 16) + sizes.labels * 12 * scale.vocab)


def budget(device: torch.device) -> int:
    """Bytes this process may plan with: what is free on the GPU, at most its share of the whole."""
    torch.cuda.empty_cache()
    index = torch.cuda.current_device() if device.index is None else device.index
    free, total = torch.cuda.mem_get_info(index)
    share = torch.cuda.get_per_process_memory_fraction(index)
    return min(free, int(share * total))


def fitting(need: Need, bytes_left: int) -> int:
    """How many replicas fit into `bytes_left` at once, at least one: whether that one fits, a GPU says best."""
    return max(1, min(need.most, int((bytes_left - OVERHEAD) / (SAFETY * need.passing))))


def plan(needs: Sequence[tuple[Need, int]], bytes_left: int) -> tuple[list[int], bool]:
    """How many replicas of each task may train at once, given what each needs and how many there are.

    True with it when all fit together, so that nothing has to be given back between them.
    """
    if all(number <= need.most for need, number in needs):
        together = sum(number * need.whole for need, number in needs)
        if OVERHEAD + SAFETY * together <= bytes_left:
            return [number for _, number in needs], True
    left = bytes_left - int(SAFETY * sum(number * need.kept for need, number in needs))
    return [min(number, fitting(need, left)) for need, number in needs], False


def stacks(number: int, capacity: int) -> list[int]:
    """`number` replicas in as few stacks of at most `capacity` as there can be, as equal as possible."""
    count = -(-number // capacity)
    return [number // count + (index < number % count) for index in range(count)]
