"""The probability of being on the front: by hand, against draws one by one, and in the time that a look may take."""

import random
import time

import pytest

from search.store.pareto import non_dominated
from search.store.probability import front_probability

Design = list[list[float]]


def test_a_front_without_seeds_is_certain() -> None:
    points = [(0.0, 3.0), (1.0, 1.0), (1.0, 2.0), (3.0, 0.0), (1.0, 1.0), (4.0, 4.0)]
    assert front_probability([[[x], [y]] for x, y in points]) == [1, 1, 0, 1, 1, 0]
    assert front_probability([]) == []


def test_front_probability_by_hand() -> None:
    # The first mean is 0, 1/2 or 1 with probabilities 1/4, 1/2, 1/4 beside a certain 1/2; equal points are both kept.
    first, second = front_probability([[[0.0, 1.0], [1.0]], [[0.5], [1.0]]], draws=4000)
    assert first == pytest.approx(0.75, abs=0.03) and second == pytest.approx(0.75, abs=0.03)
    # A design with less memory is never dominated; the other is on the front when it recalls better.
    cheap, dear = front_probability([[[0.5], [1.0]], [[0.0, 1.0], [2.0]]], draws=4000)
    assert cheap == 1 and dear == pytest.approx(0.25, abs=0.03)


def test_it_depends_on_its_seed_alone() -> None:
    designs = [[[0.0, 1.0], [1.0]], [[0.4, 0.5], [1.0]]]
    assert front_probability(designs) == front_probability(designs) != front_probability(designs, seed=1)


def made(count: int, num_noisy: int, source: random.Random) -> list[Design]:
    """Designs of three or five seeds, some of them without, at few levels of memory."""
    designs = []
    for _ in range(count):
        level, seeds = source.randrange(7), source.choice((1, 3, 5))
        noisy = [
            [-min(1.0, 0.5 + 0.05 * level + source.gauss(0, 0.05)) for _ in range(seeds)] for _ in range(num_noisy)
        ]
        designs.append([*noisy, [float(level)]])
    return designs


@pytest.mark.parametrize("num_noisy", [1, 2])
def test_it_is_the_share_of_draws_counted_one_by_one(num_noisy: int) -> None:
    source = random.Random(num_noisy)
    designs = made(25, num_noisy, source)
    draws, times = 2000, [0] * len(designs)
    for _ in range(draws):
        means = [
            tuple(sum(source.choices(samples, k=len(samples))) / len(samples) for samples in design)
            for design in designs
        ]
        for index in non_dominated(means):
            times[index] += 1
    found = front_probability(designs)
    assert found == pytest.approx([count / draws for count in times], abs=0.06)
    assert any(0.1 < probability < 0.9 for probability in found)


def test_200_designs_of_5_seeds_take_less_than_a_third_of_a_second() -> None:
    designs = made(200, 1, random.Random(0))
    begun = time.process_time()
    front_probability(designs)
    assert time.process_time() - begun < 0.3


def test_10000_designs_of_5_seeds_take_a_few_seconds_at_most() -> None:
    designs = made(10_000, 1, random.Random(0))
    begun = time.process_time()
    found = front_probability(designs)
    assert time.process_time() - begun < 5
    assert sum(found) >= 1 and found.count(0.0) > 9000
