import json

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from space import SCALES, Design, SearchSpace

SMALL = SearchSpace(depth=(3, 4), linear=("gla", "gla:conv=on"), num_attention=(0, 1, 2))
RULED = SearchSpace(depth=(6,), linear=("gla", "hgrn2"), num_attention=(1, 2, 6), placements=("group_end", "back"))
MIXED = SearchSpace(
    depth=(3,), linear=("gla", "hgrn"), attention=("full", "window:size=4"), num_attention=(0, 1, 3), mixtures=True
)
SPACES = {"small": SMALL, "ruled": RULED, "mixed": MIXED}
any_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


@any_space
def test_size_is_the_number_of_distinct_designs(space: SearchSpace) -> None:
    designs = list(space.enumerate())
    assert len(designs) == len(set(designs)) == space.size


@any_space
def test_every_design_is_contained_and_answers_lead_back_to_it(space: SearchSpace) -> None:
    for design in space.enumerate():
        assert space.contains(design)
        answers = json.loads(json.dumps(space.encode(design)))
        assert space.suggest(optuna.trial.FixedTrial(answers)) == design


@any_space
def test_what_a_study_proposes_is_in_the_space(space: SearchSpace) -> None:
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, multivariate=True, group=True))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    members = set(space.enumerate())
    for design in list(members)[:3]:
        study.enqueue_trial(space.encode(design))
    for number in range(40):
        trial = study.ask()
        assert space.suggest(trial) in members
        study.tell(trial, number)


@any_space
def test_neighbours_are_other_designs_of_the_space(space: SearchSpace) -> None:
    members = set(space.enumerate())
    for design in members:
        near = space.neighbours(design)
        assert len(near) == len(set(near))
        assert design not in near
        assert set(near) <= members


def test_single_steps_reach_the_whole_space_at_one_depth() -> None:
    space = SearchSpace(depth=(4,), linear=("gla", "hgrn2"), num_attention=(0, 1, 2))
    reached, fresh = set(), [next(space.enumerate())]
    while fresh:
        reached |= set(fresh)
        fresh = [near for design in fresh for near in space.neighbours(design) if near not in reached]
    assert len(reached) == space.size


@any_space
def test_a_space_read_back_from_json_is_the_same(space: SearchSpace) -> None:
    again = SearchSpace.from_dict(json.loads(json.dumps(space.to_dict())))
    assert again == space
    assert again.digest == space.digest


def test_a_space_digest_is_the_same_on_every_machine() -> None:
    assert SMALL.digest == "5e0a5c5286af9730"


@given(st.lists(st.sampled_from(["gla", "hgrn2", "retnet"]), min_size=1, unique=True))
def test_a_space_includes_one_with_fewer_backbones(linear: list[str]) -> None:
    whole = SearchSpace(depth=(6,), linear=("gla", "hgrn2", "retnet"))
    part = SearchSpace(depth=(6,), linear=tuple(linear))
    assert whole.includes(part)
    assert part.includes(whole) == (len(linear) == 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"linear": ("glaa",)}, r"space linear: mixer = 'glaa': must be one of .*did you mean 'gla'"),
        ({"linear": ("full",)}, r"space linear = 'full': must be one of hgrn"),
        ({"attention": ("gla",)}, r"space attention = 'gla': must be one of full, window"),
        ({"linear": ()}, r"space linear = \[\]: must have at least one entry"),
        ({"depth": ()}, r"space depth = \[\]: must have at least one entry"),
        ({"linear": ("gla", "gla:conv=off")}, r"space linear = .*: has an entry twice"),
        ({"depth": (0,)}, r"space depth = \[0\]: must be in 1\.\.256"),
        ({"num_attention": (7,)}, r"space num_attention = \[7\]: must be in 0\.\.6"),
        ({"placements": ("midle",)}, r"space placements = 'midle': .*did you mean 'middle'"),
    ],
)
def test_bad_input_is_refused_by_name(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchSpace(**{"depth": (6,), "linear": ("gla",), **change})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5xgla", "depth 5 is not one of"),
        ("6xgla+full@1", r"no placement rule puts attention at \[1\]"),
        ("6xgla+full@3,4,5", "3 attention layers is not one of"),
        ("6xretnet+full@5", "retnet is not one of"),
        ("6xgla+hgrn2@0+full@5", "mixes layers"),
    ],
)
def test_a_design_outside_the_space_is_refused_with_the_reason(text: str, message: str) -> None:
    design = Design.parse(text)
    assert not RULED.contains(design)
    with pytest.raises(ValueError, match=message):
        RULED.encode(design)


def test_a_space_whose_layers_do_not_fit_a_scale_is_refused() -> None:
    SMALL.check(SCALES["340m"])
    with pytest.raises(ValueError, match="heads = 3: must divide"):
        SearchSpace(depth=(2,), linear=("gla:heads=3",)).check(SCALES["340m"])
