"""Recall as its authors define it; text in disjoint parts; streams that never meet."""

import math
from dataclasses import replace

import pytest
import torch

from proxies.protocol import named
from proxies.tasks import LanguageTask, RecallTask, stream
from proxies.tasks.base import IGNORE
from proxies.tasks.recall import examples
from proxies.text import MIN_BYTES, Corpus

RECALL = named("quick").recall


def corpus(text: bytes = bytes(range(256)) * 200) -> Corpus:
    return Corpus(text, "test")


@pytest.mark.parametrize("pairs", [1, 4, 16])
def test_examples_bind_each_key_once_and_ask_for_it_once(pairs: int) -> None:
    settings = replace(RECALL, vocab=64, length=64, pairs=(pairs,))
    batch = examples(settings, pairs, 200, torch.Generator().manual_seed(0))
    keys, values = batch.tokens[:, 0 : 2 * pairs : 2], batch.tokens[:, 1 : 2 * pairs : 2]
    assert keys.min() >= 1 and keys.max() < 32 <= values.min() and values.max() < 64
    for row_keys, row_values, tokens, labels, positions in zip(
        keys, values, batch.tokens, batch.labels, batch.positions, strict=True
    ):
        assert len(set(row_keys.tolist())) == len(set(row_values.tolist())) == pairs
        assert len(set(positions.tolist())) == pairs
        assert positions.min() >= 2 * pairs and positions.max() < 64
        bound = dict(zip(row_keys.tolist(), row_values.tolist(), strict=True))
        assert [bound[tokens[p].item()] for p in positions] == labels.tolist()


def test_gaps_follow_the_power_law() -> None:
    settings = replace(RECALL, vocab=64, length=64, pairs=(1,))
    batch = examples(settings, 1, 20_000, torch.Generator().manual_seed(0))
    gaps = (batch.positions[:, 0] - 2) // 2
    weights = torch.arange(1, 32, dtype=torch.float64) ** (0.01 - 1)
    expected = weights / weights.sum()
    seen = torch.bincount(gaps, minlength=31).double() / len(gaps)
    assert torch.allclose(seen, expected, atol=0.012)


def test_a_training_batch_has_an_equal_share_of_every_rung() -> None:
    task = RecallTask(replace(RECALL, pairs=(2, 4), training=replace(RECALL.training, batch=8)))
    batch = next(task.training(seed=0, batch=8))
    assert (batch.labels != IGNORE).sum(1).tolist() == [2] * 4 + [4] * 4


def test_streams_of_parts_and_seeds_differ_and_repeat_exactly() -> None:
    task = RecallTask(RECALL)
    first, again, other = (next(task.training(seed, 16)).tokens for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    rung = f"pairs_{max(RECALL.pairs)}"
    validation, test = task.held_out("validation")[rung].tokens, task.held_out("test")[rung].tokens
    assert torch.equal(test, task.held_out("test")[rung].tokens)
    seen = {tuple(row) for row in validation.tolist()}
    assert not seen & {tuple(row) for row in test.tolist()}
    assert stream("a", 1).initial_seed() != stream("b", 1).initial_seed()


def test_accuracy_of_the_right_answer_is_one_and_of_another_zero() -> None:
    task = RecallTask(RECALL)
    labels = torch.tensor([[40, 41]])
    right = torch.nn.functional.one_hot(labels, 64).float()
    wrong = torch.nn.functional.one_hot(labels + 1, 64).float()
    assert task.metric(torch.stack([right, wrong]), labels).tolist() == [1.0, 0.0]


def test_text_parts_are_disjoint_and_cover_the_text() -> None:
    text = corpus()
    parts = [text.part(name) for name in ("train", "validation", "test")]
    assert b"".join(parts) == text.data
    assert all(parts)


def test_language_labels_are_the_next_bytes() -> None:
    task = LanguageTask(named("quick").language, corpus())
    batch = next(task.training(0, 4))
    assert torch.equal(batch.labels, (batch.tokens + 1) % 256)
    logits = torch.nn.functional.one_hot(batch.labels, 256).float() * 100
    assert task.metric(logits.unsqueeze(0), batch.labels).item() == pytest.approx(0, abs=1e-4)
    assert task.metric(torch.zeros(1, *logits.shape), batch.labels).item() == pytest.approx(math.log2(256))


def test_the_default_text_is_the_standard_library_and_has_one_digest() -> None:
    text = Corpus.load()
    assert text.digest == Corpus.load().digest and len(text.data) > 1_000_000
    assert b"import" in text.part("train") and b"import" in text.part("test")


def test_a_folder_is_read_whole_without_binaries_and_hidden_files(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a.txt").write_bytes(b"a" * MIN_BYTES)
    (tmp_path / "b.bin").write_bytes(b"\0" * MIN_BYTES)
    (tmp_path / ".hidden").write_bytes(b"h" * MIN_BYTES)
    assert Corpus.load(tmp_path).data == b"a" * MIN_BYTES


@pytest.mark.parametrize("content", [None, b"", b"short"], ids=["missing", "empty", "short"])
def test_missing_empty_or_short_text_is_refused_with_its_name(tmp_path, content) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"text = .*text\.txt: (no such|has \d+ bytes, must have at least)"):
        Corpus.load(path)
