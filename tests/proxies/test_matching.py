"""At equal state a proxy is built, trained and counted with the state it is said to have."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from fla.ops.simple_gla.naive import naive_recurrent_simple_gla
from torch import Tensor

from proxies.evaluate import evaluate
from proxies.mixers import MIXERS
from proxies.tasks import recall_task
from proxies.trainer import Trainer
from search.config import SearchConfig
from space.cost import cost
from space.design import Design
from tests.proxies.test_trainer import CORPUS, TINY

EQUAL = replace(TINY, match="state")
REFERENCE = 4 * 32 * 32  # bytes: one head as wide as the proxy
OPS = {"retnet": "simple_decay", "mamba2": "simple_decay", "hgrn2": "gla", "deltanet": "delta",
       "gated_deltanet": "gated_delta", "gla": "gla", "kda": "kda"}  # fmt: skip


@pytest.mark.parametrize("backbone", OPS)
def test_a_trained_proxy_keeps_the_state_that_was_asked_for(backbone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is the one fla's plain recurrence hands back for the keys and values that enter the op."""
    module, kept = import_module(MIXERS[backbone].__module__), []
    op = getattr(module, OPS[backbone])

    def watched(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        with torch.no_grad():
            _, state = naive_recurrent_simple_gla(q[:1], k[:1], v[:1], torch.zeros(k[:1].shape[:3]))
        kept.append(state.nbytes)
        return op(q, k, v, *rest)

    monkeypatch.setattr(module, OPS[backbone], watched)
    design, training = Design.parse(f"2x{backbone}"), EQUAL.recall.training
    trainer = Trainer(design, EQUAL, recall_task(EQUAL.recall), training)
    trainer.advance(1)
    assert kept == [REFERENCE, REFERENCE]
    assert trainer.failed_at_K.tolist() == [-1] * len(training.replicas)
    scale = EQUAL.scale_for(EQUAL.recall.vocab, design)
    assert sum(parameter[0].numel() for parameter in trainer.model.parameters()) == cost(design, scale).parameters
    convolution = cost(design, scale, dtype="float32").state_bytes - 2 * REFERENCE
    assert convolution == 2 * sum(
        4 * 4 * parameter.shape[1] for name, parameter in trainer.model.layers[0].named_parameters()
        if "conv1d.weight" in name
    )  # fmt: skip


def test_a_design_is_scored_at_equal_state_and_under_a_digest_of_its_own() -> None:
    report = evaluate(Design.parse("2xretnet+full@1"), EQUAL, CORPUS)
    assert report.metrics.keys() >= {"recall", "lm_bits_per_byte"}
    assert EQUAL.digest != TINY.digest


def test_a_backbone_without_room_for_the_state_is_refused_before_anything_trains() -> None:
    design, protocol = Design.parse("2xgla+hgrn@1"), {"name": "quick", "match": "state"}
    with pytest.raises(ValueError, match=r"layer 1 of .* hgrn state: must have 4096 bytes"):
        evaluate(design, EQUAL, CORPUS)
    with pytest.raises(ValueError, match="quick proxy: hgrn state: must have 4096 bytes"):
        SearchConfig(protocol=protocol)
