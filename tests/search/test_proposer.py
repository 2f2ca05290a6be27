"""Proposing: anchors first, nothing twice, whatever the history holds."""

import tomllib
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.config import SAMPLERS, SearchConfig, template
from search.proposer import Past, Proposer, anchors
from search.store.pareto import dominates, non_dominated
from space import SearchSpace

SPACE = SearchSpace(depth=(4,), linear=("gated_deltanet", "gla"), num_attention=(0, 1, 2, 4))
OBJECTIVES = {"recall": "max", "memory_bytes": "min"}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_design_is_proposed_twice_and_an_exhausted_space_says_so(sampler: str) -> None:
    proposer = Proposer(SPACE, OBJECTIVES, sampler)
    seen = []
    while (proposal := proposer.ask()) is not None:
        seen.append(proposal.design)
        proposer.tell(proposal.design, None if len(seen) % 3 == 0 else (0.5, float(len(seen))))
    assert len(seen) == len(set(seen)) == SPACE.size
    assert seen[: len(anchors(SPACE))] == anchors(SPACE)


def test_the_controls_are_attention_and_the_smallest_state_whatever_the_order_of_the_backbones() -> None:
    space = replace(SPACE, linear=("gated_deltanet", "hgrn", "gla"), depth=(4, 6), num_attention=(0, 1, 4))
    assert [str(design) for design in anchors(space)] == ["4xfull", "4xhgrn", "6xhgrn"]
    assert [str(design) for design in anchors(replace(SPACE, num_attention=(1, 4)))] == ["4xfull"]


@pytest.mark.parametrize(("sampler", "valued"), list(product(SAMPLERS, (True, False))))
def test_anchors_run_once_also_after_a_resume(sampler: str, valued: bool) -> None:
    known = anchors(SPACE)
    history = [Past(design, (0.5, 1.0) if valued else None) for design in known[:1]]
    proposer = Proposer(SPACE, OBJECTIVES, sampler, history=history)
    for design in known[1:]:
        proposal = proposer.ask()
        assert proposal is not None and (proposal.design, proposal.origin) == (design, "anchor")
    following = proposer.ask()
    assert following is not None and following.design not in known


def test_an_infeasible_design_is_told_apart_and_never_proposed() -> None:
    passed = []
    proposer = Proposer(
        SPACE, OBJECTIVES,
        infeasible=lambda design: "too big" if design.num_full > 1 else None,
        on_infeasible=lambda proposal, reason: passed.append(proposal.design),
    )  # fmt: skip
    found = []
    while (proposal := proposer.ask()) is not None:
        found.append(proposal.design)
    assert all(design.num_full <= 1 for design in found)
    assert len(passed) + len(found) == SPACE.size == len({*passed, *found})


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40))
def test_the_front_is_that_of_brute_force_with_ties_kept(points: list[tuple[float, ...]]) -> None:
    expected = {i for i, p in enumerate(points) if not any(dominates(q, p) for q in points)}
    assert set(non_dominated(points)) == expected


def test_the_template_reads_back_as_the_defaults() -> None:
    assert SearchConfig.from_dict(tomllib.loads(template())) == SearchConfig()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"trails": 3}, "did you mean 'trials'"),
        ({"space": {"linaer": ["gla"]}}, "did you mean 'linear'"),
        ({"space": {"linear": ["gated_deltanat"]}}, "did you mean 'gated_deltanet'"),
        ({"space": {"depth": [0]}}, "depth"),
        ({"protocol": {"name": "quick", "recal": {}}}, "did you mean 'recall'"),
        ({"protocol": {"name": "quick", "heads": 3}}, "must divide"),
        ({"stopping": "loss"}, "stopping = 'loss'"),
        ({"objectives": {"nan": "max"}}, "objectives"),
        ({"trials": 0}, "trials = 0"),
    ],
)
def test_a_bad_config_is_refused_with_the_field_and_what_is_allowed(data: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SearchConfig.from_dict(data)
