"""The least time a training step can take on this GPU: bytes that must move, or arithmetic, whichever is longer.

Counted for the step as it is cut today: a matrix product, a norm, a convolution, a gate or a recurrence each read their
inputs and write their outputs once, in bfloat16, and again the same way back; a recurrence keeps its state to itself.
"""

import time
from dataclasses import dataclass

import torch

from proxies.layers import Linear, ShortConv
from proxies.mixers import Mixer
from proxies.mixers.attention import Attention
from proxies.model import HybridLM
from proxies.protocol import Protocol
from space.design import Design

HALF, SINGLE = 2, 4  # bytes
OPTIMIZER = 2 * HALF + 3 * 2 * SINGLE  # a parameter: gradient in, copy out; master and two moments in and out


@dataclass(frozen=True)
class Rates:
    """What this GPU does: bytes a second of a copy, bfloat16 operations a second of a matrix product."""

    bandwidth: float
    arithmetic: float


def measure() -> Rates:
    numbers = torch.empty(2**29, dtype=torch.bfloat16, device="cuda")
    target = torch.empty_like(numbers)
    matrix = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    copying = _seconds(lambda: target.copy_(numbers))
    multiplying = _seconds(lambda: matrix @ matrix)
    return Rates(2 * numbers.nbytes / copying, 2 * 8192**3 / multiplying)


def _seconds(run) -> float:  # type: ignore[no-untyped-def]
    run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 20


def floor_ms(design: Design, protocol: Protocol, num_replicas: int, rates: Rates) -> float:
    """Milliseconds of a step of `num_replicas` replicas on the recall task."""
    model = HybridLM(design, protocol.scale, [0])
    batch, length = protocol.recall.training.batch, protocol.recall.length
    width, mlp = protocol.scale.width, protocol.scale.mlp_dim
    tokens = num_replicas * batch * length
    numbers, operations = 2.0 * width, 0.0  # the embeddings, out and back
    for block in model.layers:
        numbers += 2 * (4 + 4) * width  # two norms after a sum: two in and two out; three in and one out
        numbers += 3 * mlp + 5 * mlp  # SiLU times
        for module in block.modules():
            if isinstance(module, Linear):
                _, out, into = module.weight.shape
                numbers += 3 * (into + out)
                operations += 6 * into * out
            elif isinstance(module, ShortConv):
                numbers += (2 + 3) * module.weight.shape[1]
        numbers += _mixing(block.attn)
        if isinstance(block.attn, Attention):
            operations += 6 * length * block.attn.shape.keys  # two products over the half that is seen, three times
    parameters = sum(p.numel() for p in model.parameters()) * num_replicas
    moved = HALF * numbers * tokens + OPTIMIZER * parameters
    return max(moved / rates.bandwidth, operations * tokens / rates.arithmetic) * 1e3


def _mixing(mixer: Mixer) -> float:
    """Numbers a token that the recurrence or attention, and the norm and gate behind it, move."""
    shape = mixer.shape
    if shape.key_dim == 1:  # HGRN: gate and input
        into, out = 2 * shape.values, shape.values
    elif isinstance(mixer, Attention):
        return 3.0 * (shape.keys + 2 * shape.kv_heads * shape.key_dim) + 2 * shape.keys
    else:
        into, out = 2 * shape.keys + shape.values, shape.values
    gate = shape.values if hasattr(mixer, "g_proj") else 0
    return 3.0 * into + 2 * out + (2 * out + gate) + (3 * out + 2 * gate)
