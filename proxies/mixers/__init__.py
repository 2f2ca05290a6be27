"""The token mixers, by the names designs use. Each computes what fla's layer computes, for a stack of replicas."""

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

__all__ = ["MIXERS", "Mixer"]
