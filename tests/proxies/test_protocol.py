"""A protocol is data with a digest; bad fields are refused by name."""

import pytest

from proxies.protocol import named


def test_the_digest_changes_with_every_kind_of_field_but_not_with_the_name() -> None:
    quick = named("quick")
    others = [
        quick.with_text("0123"),
        quick.with_overrides({"width": 64}),
        quick.with_overrides({"recall": {"pairs": [1, 4]}}),
        quick.with_overrides({"recall": {"training": {"steps": 7}}}),
        quick.with_overrides({"rungs": [0.25, 1.0]}),
    ]
    assert len({quick.digest, *(other.digest for other in others)}) == 6
    assert quick.with_overrides({}).digest == quick.digest


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"widht": 64}, r"'widht': must be one of .*did you mean 'width'"),
        ({"recall": {"training": {"step": 5}}}, r"protocol\.recall\.training key 'step'.*did you mean 'steps'"),
        ({"recall": {"training": {"steps": 0}}}, r"steps = 0: must be a whole number in 1\.\."),
        ({"recall": {"training": {"learning_rates": []}}}, r"learning_rates = \[\]"),
        ({"recall": {"pairs": [5]}}, r"pairs = 5: must be a whole number in 1\.\.4"),
        ({"recall": {"pairs": [4, 2]}}, r"pairs = \[4, 2\]: must be distinct and rising"),
        ({"rungs": [0.5]}, r"rungs = \[0\.5\]: must rise"),
        ({"heads": 3}, r"heads = 3: must divide the width 32"),
        ({"width": "32"}, r"width = '32'"),
    ],
)
def test_a_bad_field_is_refused_by_name_value_and_range(overrides: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        named("quick", overrides)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="protocol = 'slow': must be one of quick"):
        named("slow")


def test_seeds_start_where_they_are_told_and_fresh_ones_follow() -> None:
    training = named("screen", {"recall": {"training": {"first_seed": 7, "learning_rates": [1e-3]}}}).recall.training
    assert (list(training.seeds), list(training.fresh)) == ([7, 8, 9, 10], [11, 12, 13, 14, 15])
    assert training.replicas == [(1e-3, seed) for seed in training.seeds]
    with pytest.raises(ValueError, match=r"first_seed = -1: must be a whole number in 0\.\."):
        named("quick", {"recall": {"training": {"first_seed": -1}}})
