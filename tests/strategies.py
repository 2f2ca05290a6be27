"""Hypothesis strategies: any layer and any design."""

from hypothesis import strategies as st

from space import MIXERS, Design, Layer
from space.mixers import Option


def _values(option: Option) -> st.SearchStrategy[int | float | bool]:
    if option.kind is bool:
        return st.booleans()
    if option.kind is int:
        return st.integers(int(option.low), int(option.high))
    return st.floats(option.low, option.high)


@st.composite
def layers(draw: st.DrawFn, mixers: tuple[str, ...] = tuple(MIXERS)) -> Layer:
    """A layer of one of `mixers` with any of its options; its shape need not fit any scale."""
    mixer = draw(st.sampled_from(mixers))
    known = MIXERS[mixer].options
    required = {name: _values(option) for name, option in known.items() if option.required}
    optional = {name: _values(option) for name, option in known.items() if not option.required}
    return Layer.of(mixer, **draw(st.fixed_dictionaries(required, optional=optional)))


@st.composite
def designs(draw: st.DrawFn, max_depth: int = 24) -> Design:
    """A design of up to three different layers, mixed in any order."""
    kinds = draw(st.lists(layers(), min_size=1, max_size=3))
    depth = draw(st.integers(1, max_depth))
    return Design(tuple(draw(st.lists(st.sampled_from(kinds), min_size=depth, max_size=depth))))
