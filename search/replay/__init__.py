"""Samplers against a recorded table of evaluations, on a virtual clock: what a search would have found, and when."""

from search.replay.simulate import Curve, replay
from search.replay.table import Entry, Reached, Table

__all__ = ["Curve", "Entry", "Reached", "Table", "replay"]
