"""What every synthetic task owes: labels that its tokens determine, chance as stated, streams that never meet."""

import re
import sys
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from proxies.ladders import (
    LADDERS,
    Copy,
    Counting,
    Fuzzy,
    KHop,
    Ladder,
    Mixture,
    MultiKey,
    MultiValue,
    Needle,
    Noisy,
    Overwrite,
    Pairs,
    StateTracking,
)
from proxies.protocol import Training, named
from proxies.tasks import TASKS, Batch, LadderTask, MixtureTask, RecallTask
from proxies.tasks.base import IGNORE, HeldOut
from proxies.trainer import Trainer
from space.design import Design
from tests.proxies.solvers import SOLVERS

SMALL: dict[str, Any] = {"vocab": 16, "length": 12, "num_examples": 8}
DRAWN: dict[str, Ladder] = {
    ladder.task: ladder
    for ladder in (
        Pairs(**SMALL, loads=(2,)),
        MultiKey(**SMALL, loads=(4,), queries=2, values=4),
        MultiValue(**SMALL, loads=(2,), keys=2),
        Overwrite(**SMALL, loads=(2,)),
        KHop(**SMALL, loads=(2,), chains=2),
        Copy(**SMALL, loads=(5,), alphabet=3),
        Noisy(**SMALL, loads=(4,), pairs=2, noise=4),
        Fuzzy(**SMALL, loads=(2,), alphabet=3),
        Needle(**SMALL, loads=(8,)),
        Counting(**SMALL, loads=(3,), repeats=1, ranks=2),
        StateTracking(**SMALL, loads=(6,)),
    )
}
PARTS: tuple[HeldOut, ...] = ("validation", "test")
VARIANTS: dict[str, Ladder] = {
    **{name: ladder(num_examples=64) for name, ladder in LADDERS.items()},
    "pairs-odd": Pairs(vocab=33, length=61, loads=(1, 15), num_examples=64),
    "multi_key-full": MultiKey(vocab=64, length=61, loads=(2, 25), queries=5, values=32, num_examples=64),
    "multi_value-full": MultiValue(vocab=32, length=48, loads=(1, 4), keys=4, num_examples=64),
    "overwrite-3": Overwrite(vocab=48, length=64, loads=(1, 8), writes=3, num_examples=64),
    "k_hop-full": KHop(vocab=32, length=64, loads=(2, 5), chains=3, num_examples=64),
    "fuzzy-3": Fuzzy(vocab=32, length=64, loads=(1, 8), motif=3, alphabet=2, num_examples=64),
    "counting-3": Counting(loads=(4, 10), ranks=3, repeats=1, num_examples=64),
    "state_tracking-parity": StateTracking(loads=(2, 7, 128), group="parity", num_examples=64),
}
every_task = pytest.mark.parametrize("name", TASKS)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def build(ladder: Ladder) -> LadderTask[Any]:
    return TASKS[ladder.task](ladder)


def solved(task: LadderTask[Any], load: int, batch: Batch) -> float:
    """The share of labels that the solver finds in the tokens up to the query."""
    assert batch.positions is not None
    solve = SOLVERS[task.name]
    right = [
        solve(task.settings, load, tokens[: place + 1]) == label
        for tokens, labels, places in zip(
            batch.tokens.tolist(), batch.labels.tolist(), batch.positions.tolist(), strict=True
        )
        for label, place in zip(labels, places, strict=True)
    ]
    return sum(right) / len(right)


def many(task: LadderTask[Any], load: int, count: int = 4000, seed: int = 0) -> Batch:
    return task.examples(load, count, torch.Generator().manual_seed(seed))


def drawn(task: LadderTask[Any]) -> Batch:
    """The example that opens the task's file, as one row; `.` is filler, `-` is not scored."""
    text = sys.modules[type(task).__module__].__doc__ or ""
    rows = []
    for name in ("tokens", "labels"):
        row = re.search(rf"^ +{name} ((?: +(?:\d+|[.|-]))+)", text, re.MULTILINE)
        assert row is not None
        words = row[1].replace("|", " ").split()[: task.settings.length]
        rows.append([{".": 0, "-": IGNORE}[word] if word in ".-" else int(word) for word in words])
    tokens, labels = rows
    places = [place for place, label in enumerate(labels) if label != IGNORE]
    return Batch(torch.tensor([tokens]), torch.tensor([[labels[place] for place in places]]), torch.tensor([places]))


def guess(asked: tuple[Tensor, Tensor], labels: tuple[Tensor, Tensor]) -> float:
    """Accuracy on the second half of one who knows the first half's most frequent label for what was asked."""
    counts: dict[int, Counter[int]] = {}
    for question, label in zip(asked[0].flatten().tolist(), labels[0].flatten().tolist(), strict=True):
        counts.setdefault(question, Counter())[label] += 1
    best = {question: counter.most_common(1)[0][0] for question, counter in counts.items()}
    right = [
        best.get(question) == label
        for question, label in zip(asked[1].flatten().tolist(), labels[1].flatten().tolist(), strict=True)
    ]
    return sum(right) / len(right)


class TestTask:
    """The contract, for every task of the registry."""

    def test_the_registries_of_settings_tasks_and_solvers_agree(self) -> None:
        assert list(TASKS) == list(LADDERS) == list(SOLVERS) == list(DRAWN)
        for name, task in TASKS.items():
            assert LADDERS[name]().task == task.name == name
            assert task.separates and task.ceiling == 1

    @every_variant
    def test_shapes_and_bounds(self, variant: str) -> None:
        ladder = VARIANTS[variant]
        task = build(ladder)
        held_out = task.held_out("validation")
        assert list(held_out) == list(task.rungs) == [f"{task.name}_{load}" for load in ladder.loads]
        for batch in held_out.values():
            assert batch.positions is not None
            assert batch.tokens.shape == (ladder.num_examples, ladder.length)
            assert batch.labels.shape == batch.positions.shape and len(batch.labels) == ladder.num_examples
            assert {x.dtype for x in batch.tensors} == {torch.long}
            assert batch.tokens.min() >= 0 and batch.tokens.max() < ladder.vocab == task.vocab
            assert batch.labels.min() >= 1 and batch.labels.max() < ladder.vocab
            assert batch.positions.min() >= 0 and batch.positions.max() < ladder.length
            assert all(len(set(row)) == len(row) for row in batch.positions.tolist())

    @every_variant
    def test_the_tokens_up_to_a_query_determine_its_label(self, variant: str) -> None:
        task = build(VARIANTS[variant])
        for part in PARTS:
            for rung, batch in task.held_out(part).items():
                assert solved(task, task.rungs[rung], batch) == task.ceiling

    @every_task
    def test_the_largest_load_fits_and_the_next_is_refused(self, name: str) -> None:
        ladder = LADDERS[name]()
        loads = (ladder.smallest, ladder.largest)
        task = build(replace(ladder, loads=loads, num_examples=4))
        for rung, batch in task.held_out("test").items():
            assert solved(task, task.rungs[rung], batch) == 1
        for load in (ladder.smallest - 1, ladder.largest + 1):
            with pytest.raises(ValueError, match=rf"^{name} loads = {load}: must be a whole number in \d+\.\.\d+$"):
                replace(ladder, loads=(load,))

    @every_task
    def test_the_drawn_example_is_a_real_one(self, name: str) -> None:
        task = build(DRAWN[name])
        (load,) = task.settings.loads
        batch, like = drawn(task), many(task, load, 1)
        assert [x.shape for x in batch.tensors] == [x.shape for x in like.tensors]
        assert batch.tokens.max() < task.vocab
        by_place = batch.positions.argsort()  # type: ignore[union-attr]
        assert solved(task, load, batch.map(lambda x: x if x.shape[1] == 12 else x.gather(1, by_place))) == 1

    @every_task
    def test_who_ignores_the_context_scores_chance(self, name: str) -> None:
        task = build(VARIANTS[name])
        for rung, load in task.rungs.items():
            seen, unseen = many(task, load), many(task, load, seed=1)
            labels = seen.labels, unseen.labels
            order = torch.arange(seen.labels.shape[1]).expand_as(seen.labels)
            assert guess((order, order), labels) == pytest.approx(task.chance(rung), abs=0.02)
            if name not in ("copy", "multi_value"):  # there the token at a query is the answer before
                tokens = seen.tokens.gather(1, seen.positions), unseen.tokens.gather(1, unseen.positions)  # type: ignore[arg-type]
                assert guess(tokens, labels) == pytest.approx(task.chance(rung), abs=0.02)

    @pytest.mark.parametrize("name", [name for name in TASKS if name != "copy"])  # which is to look at one distance
    def test_where_a_query_is_does_not_tell_where_its_answer_is(self, name: str) -> None:
        task = build(VARIANTS[name])
        batch = many(task, max(task.settings.loads))
        assert batch.positions is not None
        places = torch.arange(task.settings.length)
        hits = (batch.tokens.unsqueeze(1) == batch.labels.unsqueeze(2)) & (places <= batch.positions.unsqueeze(2))
        by_place = torch.zeros(len(places), len(places)).index_add(
            0, batch.positions.flatten(), hits.flatten(0, 1).float()
        )
        assert by_place.max(1).values.sum() / batch.labels.numel() < 0.25

    @every_task
    def test_making_examples_never_waits_for_their_values(self, name: str) -> None:
        """Fake tensors have no values: what asks for one, as `.item()` and masks do, raises."""
        task = build(VARIANTS[name])
        generator = torch.Generator().manual_seed(0)
        with FakeTensorMode():
            for load in task.settings.loads:
                assert task.examples(load, 3, generator).tokens.shape == (3, task.settings.length)

    @every_task
    def test_streams_repeat_exactly_and_never_meet(self, name: str) -> None:
        task = build(VARIANTS[name])
        share = task.num_rungs * 2
        first, again, other = (list(islice(task.training(seed, share), 3)) for seed in (0, 0, 1))
        assert all(
            torch.equal(x, y)
            for a, b in zip(first, again, strict=True)
            for x, y in zip(a.tensors, b.tensors, strict=True)
        )
        assert not torch.equal(first[0].tokens, first[1].tokens)
        load = max(task.settings.loads)
        rung = f"{name}_{load}"
        validation, test = (task.held_out(part)[rung].tokens for part in PARTS)
        assert torch.equal(test, task.held_out("test")[rung].tokens)
        training = [torch.cat([batch.tokens[-2:] for batch in batches]) for batches in (first, other)]
        rows = [tuple(row) for part in (*training, validation, test) for row in part.tolist()]
        assert len(set(rows)) == len(rows)

    def test_no_two_tasks_share_a_stream(self) -> None:
        seeds = {
            (TASKS[name].stream_name or name, part): build(DRAWN[name])._stream(part, 0).initial_seed()
            for name in TASKS
            for part in ("train", *PARTS)
        }
        assert len(set(seeds.values())) == len(seeds) == 3 * len(TASKS)

    @every_task
    def test_a_training_batch_has_an_equal_share_of_every_rung(self, name: str) -> None:
        task = build(VARIANTS[name])
        batch = next(task.training(0, 3 * task.num_rungs))
        assert batch.positions is not None
        for index, load in enumerate(task.settings.loads):
            rows = slice(3 * index, 3 * index + 3)
            queries = many(task, load, 1).labels.shape[1]
            assert (batch.labels[rows] != IGNORE).sum(1).tolist() == [queries] * 3
            piece = batch.map(lambda x, rows=rows: x[rows])
            cut = Batch(piece.tokens, piece.labels[:, :queries], piece.positions[:, :queries])  # type: ignore[index]
            assert solved(task, load, cut) == 1
        with pytest.raises(ValueError, match=r"batch = 3: must be a multiple of the 4 rungs"):
            task.training(0, 3)


def test_accuracy_leaves_out_what_is_not_scored() -> None:
    task = build(DRAWN["pairs"])
    labels = torch.tensor([[3, IGNORE], [4, 5]])
    answers = torch.tensor([[3, 3], [4, 1]])
    logits = torch.nn.functional.one_hot(answers, 16).float()
    assert task.metric(logits.unsqueeze(0), labels).tolist() == [pytest.approx(2 / 3)]


def test_pairs_have_the_examples_of_the_protocol_s_recall() -> None:
    recall = replace(named("quick").recall, filler="random")
    pairs = Pairs(vocab=recall.vocab, length=recall.length, loads=recall.pairs, filler=recall.filler)
    for batches in zip(islice(build(pairs).training(0, 24), 3), RecallTask(recall).training(0, 24), strict=False):
        assert all(torch.equal(x, y) for x, y in zip(*(batch.tensors for batch in batches), strict=True))


def test_every_pair_of_k_hop_is_there_at_every_load() -> None:
    task = build(KHop(loads=(1, 4), chains=2))
    for load in (1, 4):
        tokens = many(task, load, 50).tokens
        assert (tokens[:, :16] > 0).all() and (tokens[:, 16:] > 0).sum(1).tolist() == [2] * 50


def test_loads_come_in_one_after_the_other_while_they_grow() -> None:
    """Four examples a step: 2, then 2 and 3, then all of 2, 3 and 4; the shapes are those of the largest load."""
    ladder = Pairs(vocab=16, length=16, loads=(2, 3, 4), num_examples=8)
    task = MixtureTask(Mixture(ladders=(ladder,)), grown=192)
    loads = {
        step: sorted((batch.labels != IGNORE).sum(1).tolist())
        for step, batch in enumerate(islice(task.training(0, 6), 260))
    }
    assert {tuple(loads[step]) for step in range(64)} == {(2,) * 6}
    assert {tuple(loads[step]) for step in range(64, 128)} == {(2, 2, 2, 3, 3, 3)}
    assert {tuple(loads[step]) for step in range(128, 260)} == {(2, 2, 3, 3, 4, 4)}
    assert {batch.labels.shape for batch in islice(task.training(0, 6), 200)} == {torch.Size([6, 4])}


def test_overwrite_writes_some_keys_once_and_some_often() -> None:
    task = build(Overwrite(loads=(4,)))
    writes = {count for row in many(task, 4, 200).tokens[:, :16:2].tolist() for count in Counter(row).values()}
    assert writes == {1, 2, 3, 4, 5}


class TestMixture:
    ladders = tuple(replace(ladder, num_examples=16) for ladder in (LADDERS[name]() for name in LADDERS))

    def test_a_batch_has_a_share_of_every_task_and_rung_each_under_its_name(self) -> None:
        mixture = MixtureTask(Mixture(ladders=self.ladders))
        batch = next(mixture.training(0, 2 * mixture.num_rungs))
        assert batch.positions is not None and batch.tokens.shape == (88, 129) and mixture.vocab == 75
        row = 0
        for index, (ladder, task) in enumerate(zip(self.ladders, mixture.tasks.values(), strict=True)):
            for load in ladder.loads:
                rows = slice(row, row + 2)
                assert batch.tokens[rows, 0].tolist() == [64 + index] * 2
                queries = int((batch.labels[row] != IGNORE).sum())
                alone = Batch(batch.tokens[rows, 1:], batch.labels[rows, :queries], batch.positions[rows, :queries] - 1)
                assert solved(task, load, alone) == 1
                row += 2
        assert row == len(batch.tokens)

    def test_held_out_examples_are_those_of_the_tasks(self) -> None:
        mixture = MixtureTask(Mixture(ladders=self.ladders))
        held_out = mixture.held_out("test")
        assert len(held_out) == mixture.num_rungs == 44 and list(held_out) == list(mixture.rungs)
        for ladder in self.ladders:
            for rung, batch in build(ladder).held_out("test").items():
                assert torch.equal(held_out[rung].tokens[:, 1:], batch.tokens)
                assert torch.equal(held_out[rung].labels, batch.labels)
                assert torch.equal(held_out[rung].positions - 1, batch.positions)  # type: ignore[operator, arg-type]
                assert mixture.chance(rung) == build(ladder).chance(rung)

    def test_a_model_trains_on_it_and_is_measured_at_every_rung(self) -> None:
        small = [replace(ladder, num_examples=4, loads=ladder.loads[:2]) for ladder in self.ladders]
        task = MixtureTask(Mixture(ladders=tuple(small)))
        training = Training(steps=2, batch=task.num_rungs, learning_rates=(1e-3,), num_seeds=1)
        trainer = Trainer(Design.parse("1xfull"), named("quick"), task, training)
        trainer.advance(2)
        figures = trainer.measure("test")
        assert list(figures) == list(task.rungs) and trainer.failed_at_K.tolist() == [-1]
        assert all(0 <= figure.item() <= 1 for figure in figures.values())

    def test_figures_are_sorted_by_task_and_load(self) -> None:
        mixture = MixtureTask(Mixture(ladders=(Pairs(loads=(4, 8)), Copy(loads=(8,)))))
        figures = {"pairs_4": 0.9, "copy_8": 0.5, "pairs_8": 0.7}
        assert mixture.by_task(figures) == {"pairs": {4: 0.9, 8: 0.7}, "copy": {8: 0.5}}

    @pytest.mark.parametrize(
        ("ladders", "message"),
        [
            ((), r"mixture ladders = \[\]: must be distinct, at least one"),
            ((Copy(), Copy(loads=(4,))), r"mixture ladders = \['copy', 'copy'\]: must be distinct"),
            ((Copy(), Pairs(vocab=50)), r"mixture vocab = \[64, 50\]: must be the same"),
            ((Copy(), Pairs(length=130)), r"mixture length = \[128, 130\]: must be the same"),
        ],
    )
    def test_tasks_that_do_not_mix_are_refused(self, ladders: tuple[Ladder, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Mixture(ladders=ladders)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("pairs", {"filler": "dots"}, r"pairs filler = 'dots': must be 'random' or 'zero'"),
        ("pairs", {"loads": (4, 2)}, r"pairs loads = \[4, 2\]: must be distinct and rising"),
        ("pairs", {"loads": ()}, r"pairs loads = \[\]: must be distinct and rising, at least one"),
        ("pairs", {"loads": (2.0,)}, r"pairs loads = 2\.0: must be a whole number in 1\.\.31"),
        ("pairs", {"vocab": 8}, r"pairs vocab = 8: must be a whole number in 16\.\."),
        ("copy", {"length": 0}, r"copy length = 0: must be a whole number in 4\.\."),
        ("needle", {"num_examples": 0}, r"needle num_examples = 0: must be"),
        ("multi_key", {"values": 63}, r"multi_key values = 63: must be a whole number in 2\.\.62"),
        ("multi_key", {"queries": 33}, r"multi_key queries = 33: must be a whole number in 1\.\.32"),
        ("multi_key", {"loads": (8, 48)}, r"multi_key loads = 48: must be a whole number in 1\.\.47"),
        ("multi_value", {"keys": 32}, r"multi_value keys = 32: must be a whole number in 1\.\.31"),
        ("overwrite", {"writes": 0}, r"overwrite writes = 0: must be a whole number in 1\.\.32"),
        ("k_hop", {"chains": 40}, r"k_hop chains = 40: must be a whole number in 1\.\.31"),
        ("copy", {"alphabet": 63}, r"copy alphabet = 63: must be a whole number in 2\.\.62"),
        ("noisy", {"noise": 61}, r"noisy noise = 61: must be a whole number in 1\.\.60"),
        ("noisy", {"pairs": 24}, r"noisy pairs = 24: must be a whole number in 1\.\.23"),
        ("fuzzy", {"motif": 10}, r"fuzzy motif = 10: 6\^motif must be at most 4096"),
        ("fuzzy", {"alphabet": 1}, r"fuzzy alphabet = 1: must be a whole number in 2\.\.62"),
        ("counting", {"ranks": 0}, r"counting ranks = 0: must be a whole number in 1\.\.31"),
        ("counting", {"repeats": 0}, r"counting repeats = 0: must be a whole number in 1\.\.42"),
        ("state_tracking", {"group": "a5"}, r"state_tracking group = 'a5': must be 's3' or 'parity'"),
    ],
)
def test_a_bad_field_is_refused_by_name_value_and_range(name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LADDERS[name](**fields)
