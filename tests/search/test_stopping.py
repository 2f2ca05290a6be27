"""A trial stops only where enough rivals at the same rung are better, and never early or on the front."""

from search.stopping import GRACE, MIN_RIVALS, goes_on

RIVALS = [(-0.9, 4.0), (-0.8, 3.0), (-0.7, 2.0), (-0.6, 1.0)]  # minus recall, memory: all on one front


def test_a_trial_behind_the_front_stops_and_one_on_it_goes_on() -> None:
    assert not goes_on((-0.5, 5.0), RIVALS, budget=0.5)
    assert goes_on((-0.95, 5.0), RIVALS, budget=0.5)
    assert goes_on((-0.5, 0.5), RIVALS, budget=0.5)


def test_nothing_stops_in_the_grace_or_with_few_rivals() -> None:
    assert goes_on((-0.5, 5.0), RIVALS, budget=GRACE - 0.01)
    assert goes_on((-0.5, 5.0), RIVALS[: MIN_RIVALS - 1], budget=0.5)


def test_half_of_those_behind_go_on() -> None:
    behind = [(-0.1, 9.0), (-0.1, 9.0), (-0.1, 9.0), (-0.1, 9.0), (-0.1, 9.0)]
    assert goes_on((-0.5, 5.0), [*RIVALS[:2], *behind], budget=0.5)
