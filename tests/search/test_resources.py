"""Trainings ask for the cores and GPUs they use, and what no machine can give is refused before anything starts."""

import io
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from proxies.evaluate import Report
from proxies.protocol import Protocol
from proxies.text import Corpus
from search import resources, runner
from search.config import SearchConfig, template
from search.driver import MOST_LOSSES, Driver, Outcome
from search.progress import Progress
from search.resources import Node, gpu_share, num_gpus, num_slots
from search.runner import run
from search.store import writer
from search.store.recorder import Lease, Recorder
from space import Design
from tests.search.driving import definition
from tests.search.test_runner import TINY, Heard, outcomes

CORPUS = Corpus(bytes(range(256)) * 200, "test")
METRICS = {"recall": 0.5, "recall_low": 0.4, "recall_high": 0.6, "lm_bits_per_byte": 3.0}


def asking(cpus: int = 1, gpus: float | None = None, workers: int = 0) -> SearchConfig:
    return SearchConfig(cpus_per_trial=cpus, gpus_per_trial=gpus, workers=workers)


@pytest.mark.parametrize(
    ("config", "nodes", "slots", "share"),
    [
        (asking(), [Node(16, 0)], 16, 0),
        (asking(), [Node(16, 2)], 2, 1),  # left out: a GPU each
        (asking(gpus=0), [Node(16, 2)], 16, 0),
        (asking(gpus=0.5), [Node(16, 2)], 4, 0.5),
        (asking(gpus=0.3), [Node(16, 1)], 3, 0.3),
        (asking(gpus=0.1), [Node(16, 1)], 10, 0.1),
        (asking(cpus=8, gpus=0.25), [Node(16, 1)], 2, 0.25),
        (asking(gpus=1, workers=1), [Node(16, 2)], 1, 1),
        (asking(cpus=4), [Node(6, 0), Node(6, 0)], 2, 0),  # a training is on one machine
        (asking(), [Node(64, 0), Node(8, 4)], 4, 1),
    ],
)
def test_as_many_run_at_once_as_cores_and_gpus_allow(
    config: SearchConfig, nodes: list[Node], slots: int, share: float
) -> None:
    assert (num_slots(config, nodes), gpu_share(config, nodes)) == (slots, share)


@pytest.mark.parametrize(
    ("config", "nodes", "message"),
    [
        (asking(cpus=3), [Node(2, 0)], "cpus_per_trial = 3: must be in 1..2, the cores there are"),
        (asking(cpus=8), [Node(6), Node(6)], "cpus_per_trial = 8: must be in 1..6, the cores of the largest machine"),
        (asking(gpus=1), [Node(2, 0)], "gpus_per_trial = 1: must be 0, there is no GPU on this machine"),
        (asking(gpus=0.5), [Node(2), Node(4)], "gpus_per_trial = 0.5: must be 0, there is no GPU on these 2 machines"),
        (asking(cpus=8), [Node(64, 0), Node(4, 1)], "cpus_per_trial = 8: must be in 1..4, .* with a GPU"),
    ],
)
def test_what_no_machine_can_give_is_refused_by_name(config: SearchConfig, nodes: list[Node], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        num_slots(config, nodes)


@pytest.mark.parametrize("value", [-1, 0.001, 1.5, 2, True, "1"])
def test_a_share_outside_of_one_gpu_is_refused(value: object) -> None:
    with pytest.raises(
        ValueError, match=r"gpus_per_trial = .*: must be 0 for the CPU, or a share of one GPU in 0.01..1"
    ):
        SearchConfig.from_dict({"gpus_per_trial": value})


def test_a_file_may_leave_the_share_out_or_name_it(tmp_path: Path) -> None:
    path = tmp_path / "search.toml"
    for config in (SearchConfig(), asking(gpus=0.5), asking(gpus=0)):
        path.write_text(template(config))
        assert SearchConfig.read(path) == config
    assert "# gpus_per_trial = 1" in template()


@pytest.mark.parametrize(("visible", "count"), [(None, 2), ("", 0), ("-1", 0), ("1", 1), ("0,1", 2), ("0,1,2", 2)])
def test_hidden_gpus_do_not_count(monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int) -> None:
    monkeypatch.setattr(resources, "physical_gpus", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert num_gpus() == count


def seen(design: Design, protocol: Protocol, corpus: Corpus, device: torch.device) -> Iterator[Report]:
    """Says where it is: 1 for a GPU, and which one Ray shows. On a GPU two wait until both have started."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "-1")
    folder, deadline = Path(corpus.source), time.monotonic() + 60
    (folder / f"gpu {visible}").touch()
    while device.type == "cuda" and len(list(folder.glob("gpu *"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    metrics = METRICS | {"recall_on_gpu": float(device.type == "cuda"), "recall_gpu": float(visible)}
    yield Report(rung=0, num_rungs=1, budget=1.0, metrics=metrics, details={})


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that exist in Ray's books alone."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(runner, "this_machine", lambda: Node(2, 2))


def test_trainings_ask_ray_for_a_gpu_and_each_sees_its_own(tmp_path: Path, two_gpus: None) -> None:
    engine, heard = writer(f"sqlite:///{tmp_path}/plait.db"), Heard()
    config, corpus = SearchConfig.read(TINY).with_options(trials=2), Corpus(CORPUS.data, str(tmp_path))
    assert run(config, corpus, engine, heard, rungs=seen).finished == 2
    rows = outcomes(engine).values()
    assert {row.metrics["recall_on_gpu"] for row in rows} == {1.0}
    assert {row.metrics["recall_gpu"] for row in rows} == {0.0, 1.0}
    assert heard.where == "2 at a time, 1 of 2 cores and 1 of 2 GPUs each"


def test_with_a_share_of_0_trainings_are_on_the_cpu(tmp_path: Path, two_gpus: None) -> None:
    engine, heard = writer(f"sqlite:///{tmp_path}/plait.db"), Heard()
    config = SearchConfig.read(TINY).with_options(trials=2, gpus_per_trial=0)
    assert run(config, Corpus(CORPUS.data, str(tmp_path)), engine, heard, rungs=seen).finished == 2
    assert {row.metrics["recall_on_gpu"] for row in outcomes(engine).values()} == {0.0}
    assert heard.where == "2 at a time, 1 of 2 cores each"


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
def test_a_gpu_that_torch_cannot_use_ends_the_run_and_is_not_silently_the_cpu(tmp_path: Path, two_gpus: None) -> None:
    engine = writer(f"sqlite:///{tmp_path}/plait.db")
    with pytest.raises(ValueError, match=r"gpus_per_trial = 1: torch .* sees no GPU: install .*--gpus-per-trial 0$"):
        run(SearchConfig.read(TINY), CORPUS, engine, Heard())
    assert {row.state for row in outcomes(engine).values()} == {"queued"}, "a design was blamed for its machine"


def test_workers_that_are_alike_are_introduced_once_and_another_too(tmp_path: Path) -> None:
    heard, config = Heard(), SearchConfig(name="s", trials=4, sampler="random")
    engine = writer(f"sqlite:///{tmp_path}/plait.db")
    recorder = Recorder.open(engine, definition(config))
    driver = Driver(config, engine, recorder, heard, 3)
    first, second, third = (lease.evaluation for lease in (driver.next() for _ in range(3)) if isinstance(lease, Lease))
    for evaluation, gpu in ((first, "H200"), (second, "H200"), (third, "A100")):
        said = Outcome.from_json(Outcome(gpu=gpu, serving={"full": "torch"}).to_json())
        assert driver.measured(evaluation, said) and not said.done
    assert heard.notices == ["works with H200", "works with A100"]
    assert set(driver.running) == {first, second, third}
    recorder.close()


def dying(design: Design, protocol: Protocol, corpus: Corpus, device: torch.device) -> Iterator[Report]:
    """One design loses the GPU once, another always; a process that lost it never trains again."""
    folder = Path(corpus.source)
    assert not (folder / str(os.getpid())).exists(), "a process without its GPU was used again"
    if str(design) == "2xgla" or (str(design) == "2xhgrn" and not (folder / "hgrn").exists()):
        (folder / str(os.getpid())).touch()
        (folder / "hgrn").touch() if str(design) == "2xhgrn" else None
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")
    yield Report(rung=0, num_rungs=1, budget=1.0, metrics=METRICS, details={})


def test_a_worker_that_lost_its_gpu_ends_and_its_design_runs_again_in_another(tmp_path: Path, two_gpus: None) -> None:
    engine, heard = writer(f"sqlite:///{tmp_path}/plait.db"), Heard()
    config = SearchConfig.read(TINY).with_options(trials=7, workers=1)
    ending = run(config, Corpus(bytes(range(256)) * 200, str(tmp_path)), engine, heard, rungs=dying)
    rows = outcomes(engine)
    assert ending.finished == 6 and MOST_LOSSES > 4
    assert (rows["2xhgrn"].state, rows["2xhgrn"].attempts) == ("complete", 2)
    assert (rows["2xgla"].state, rows["2xgla"].attempts) == ("lost", 4)
    reason = "gpu_error: CUDA error: an illegal memory access was encountered"
    assert rows["2xgla"].reason == f"{reason} 4 times"
    assert ("2xhgrn", "lost", f"{reason}, will run again") in heard.ends
    assert {row.state for name, row in rows.items() if name != "2xgla"} == {"complete"}


def test_what_serves_the_mixers_fits_into_80_columns() -> None:
    console = Console(width=80, file=io.StringIO())
    wrong = "torch form: Triton 3.6.0 computes wrong gradients on Hopper, 3.7.1 does not"
    serving = {"full": "torch's scaled_dot_product_attention", "retnet": wrong, "gated_deltanet": wrong}
    progress = Progress(console, 0, 20)
    progress.began("1 at a time, 1 of 16 cores and 1 of 1 GPU each")
    progress.works_with("NVIDIA H200", serving)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    print("\n".join(lines))
    assert max(map(len, lines)) <= 80 and any("retnet, gated_deltanet" in line for line in lines)
