"""The token mixers, by the names designs use. Each computes what fla's layer computes, for a stack of replicas."""

from collections.abc import Iterable

import torch

from proxies.mixers.attention import Attention
from proxies.mixers.base import Mixer
from proxies.mixers.deltanet import DeltaNet
from proxies.mixers.gated_deltanet import GatedDeltaNet
from proxies.mixers.gla import GatedLinearAttention
from proxies.mixers.hgrn import HGRN
from proxies.mixers.hgrn2 import HGRN2
from proxies.mixers.kda import KimiDeltaAttention
from proxies.mixers.mamba2 import Mamba2
from proxies.mixers.retnet import RetNet
from proxies.ops.kernels import choose

MIXERS: dict[str, type[Mixer]] = {
    "full": Attention,
    "window": Attention,
    "hgrn": HGRN,
    "retnet": RetNet,
    "gla": GatedLinearAttention,
    "hgrn2": HGRN2,
    "deltanet": DeltaNet,
    "gated_deltanet": GatedDeltaNet,
    "mamba2": Mamba2,
    "kda": KimiDeltaAttention,
}


def serving(names: Iterable[str], device: torch.device) -> dict[str, str]:
    """What serves each mixer on `device`, and why."""
    return {name: choose(MIXERS[name].op, device).reason for name in names}


__all__ = ["MIXERS", "Mixer", "serving"]
