"""Scores by hand: capacities and areas of ladders, and intervals from seeds."""

import math

import pytest

from proxies.scoring import area, bootstrap, capacity, mean, solved_share

NAN = float("nan")


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([1.0, 1.0, 1.0], 16),  # at least the largest
        ([1.0, 1.0, 0.9], 16),
        ([0.8, 0.7, 0.6], 0),
        ([0.9, 0.7, 0.6], 4),
        ([1.0, 0.8, 0.6], 4 * 2**0.5),  # halfway from 1.0 to 0.8, so halfway from log 4 to log 8
        ([1.0, 0.95, 0.75], 8 * 2**0.25),
        ([1.0, 0.5, 0.95], 16),  # the largest load that has it, whatever comes before
    ],
)
def test_capacity_is_the_largest_load_with_the_accuracy_by_log_load(accuracies: list[float], expected: float) -> None:
    assert capacity([4, 8, 16], accuracies) == pytest.approx(expected)


def test_capacity_at_another_accuracy() -> None:
    assert capacity([1, 100], [1.0, 0.0], at=0.5) == pytest.approx(10)


def test_area_is_the_mean_accuracy_over_log_load() -> None:
    assert area([4, 8, 16], [1.0, 0.5, 0.0]) == pytest.approx(0.5)
    assert area([2, 4, 16], [1.0, 0.4, 0.1]) == pytest.approx((0.7 + 2 * 0.25) / 3)  # log 4/2 is half of log 16/4
    assert area([8], [0.6]) == 0.6


def test_area_is_zero_at_chance_and_one_at_the_ceiling() -> None:
    assert area([4, 8], [0.25, 0.25], chance=0.25) == 0
    assert area([4, 8], [1.0, 1.0], chance=0.25) == 1
    assert area([4, 8], [1.0, 0.25], chance=0.25) == pytest.approx(0.5)


@pytest.mark.parametrize("figure", [capacity, area])
@pytest.mark.parametrize(
    ("loads", "accuracies", "message"),
    [
        ([], [], r"loads = \[\]: must be positive and rising, at least one"),
        ([0, 4], [1.0, 1.0], r"loads = \[0, 4\]: must be positive"),
        ([4, 4], [1.0, 1.0], r"loads = \[4, 4\]: must be positive and rising"),
        ([4, 8], [1.0], r"accuracies = \[1\.0\]: must be 2 finite numbers"),
        ([4, 8], [1.0, NAN], r"accuracies = \[1\.0, nan\]: must be 2 finite numbers"),
    ],
)
def test_what_is_no_curve_is_refused(figure, loads, accuracies, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        figure(loads, accuracies)


def test_a_failed_seed_has_not_solved_it() -> None:
    assert solved_share([0.95, 0.9, 0.5, NAN]) == 0.5
    assert solved_share([0.95, 0.9], at=0.92) == 0.5


def test_the_bootstrap_of_a_mean_has_the_quantiles_of_its_draws() -> None:
    # Means of two draws from {0, 1} are 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4.
    assert bootstrap([0.0, 1.0], mean) == bootstrap([0.0, 1.0], mean)
    wide, narrow = bootstrap([0.0, 1.0], mean), bootstrap([0.0, 1.0], mean, level=0.4)
    assert (wide.mean, wide.low, wide.high) == (0.5, 0.0, 1.0)
    assert (narrow.mean, narrow.low, narrow.high) == (0.5, 0.5, 0.5)
    assert bootstrap([0.3], mean).low == bootstrap([0.3], mean).high == 0.3


def test_the_bootstrap_of_many_seeds_is_near_the_normal_interval() -> None:
    values = [index / 99 for index in range(100)]
    found = bootstrap(values, mean)
    half = 1.96 * math.sqrt(sum((value - 0.5) ** 2 for value in values) / 100) / 10
    assert found.low == pytest.approx(0.5 - half, abs=0.005) and found.high == pytest.approx(0.5 + half, abs=0.005)


def test_the_bootstrap_takes_whole_ladders() -> None:
    loads, curves = [4, 8, 16], [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]

    def of_mean(drawn) -> float:  # type: ignore[no-untyped-def]
        return capacity(loads, [mean(at_load) for at_load in zip(*drawn, strict=True)])

    found = bootstrap(curves, of_mean)
    assert found.mean == pytest.approx(4 * 2**0.2)  # the mean curve falls from 1.0 to 0.5
    assert (found.low, found.high) == (pytest.approx(4 * 2**0.1), 16)
