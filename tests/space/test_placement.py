import pytest
from hypothesis import given
from hypothesis import strategies as st

from space import PLACEMENTS, place


@given(st.sampled_from(tuple(PLACEMENTS)), st.integers(1, 64), st.data())
def test_places_are_sorted_distinct_in_range_and_as_many_as_asked(rule: str, depth: int, data: st.DataObject) -> None:
    num_full = data.draw(st.integers(0, depth))
    places = place(rule, depth, num_full)
    assert len(places) == num_full
    assert list(places) == sorted(set(places))
    assert all(0 <= index < depth for index in places)


@pytest.mark.parametrize(
    ("rule", "depth", "num_full", "places"),
    [
        ("group_end", 12, 4, (2, 5, 8, 11)),
        ("group_end", 24, 1, (23,)),
        ("group_middle", 12, 3, (2, 6, 10)),
        ("group_middle", 32, 4, (4, 12, 20, 28)),
        ("front", 12, 2, (0, 1)),
        ("back", 12, 2, (10, 11)),
        ("middle", 12, 2, (5, 6)),
        ("middle", 12, 3, (4, 5, 6)),
        ("ends", 12, 4, (0, 1, 10, 11)),
        ("ends", 12, 3, (0, 10, 11)),
    ],
)
def test_each_rule_on_an_example(rule: str, depth: int, num_full: int, places: tuple[int, ...]) -> None:
    assert place(rule, depth, num_full) == places


def test_an_unknown_rule_and_a_count_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"placement = 'centre': must be one of group_end"):
        place("centre", 12, 2)
    with pytest.raises(ValueError, match=r"num_full = 13: must be in 0\.\.12"):
        place("front", 12, 13)
