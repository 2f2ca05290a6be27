"""What a design is and what it costs. Pure Python: no torch, no database."""

from space.cost import Cost, cost
from space.design import Design, Layer
from space.mixers import BACKBONES, MIXERS, MixerSpec, Shape
from space.placement import PLACEMENTS, place
from space.presets import PRESETS, preset
from space.scale import SCALES, Scale
from space.space import SearchSpace

__all__ = [
    "BACKBONES",
    "MIXERS",
    "PLACEMENTS",
    "PRESETS",
    "SCALES",
    "Cost",
    "Design",
    "Layer",
    "MixerSpec",
    "Scale",
    "SearchSpace",
    "Shape",
    "cost",
    "place",
    "preset",
]
