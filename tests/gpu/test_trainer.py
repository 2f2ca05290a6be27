"""The captured step trains as the plain one does, and a stack as its replicas would alone."""

import math

import pytest
import torch

from proxies.graph import Graphs
from proxies.ladders import Segment, Segments
from proxies.tasks import SegmentsTask
from proxies.trainer import Trainer
from space.design import Design
from tests.gpu.proxy import GPU, proxy, trainer

DESIGNS = ["4xfull", "4xgla+full@3", "4xdeltanet+full@3", "4xgated_deltanet+full@3"]
STEPS = 300
CHECKPOINTS = range(50, STEPS + 1, 50)


def curve(trained) -> torch.Tensor:  # type: ignore[no-untyped-def]
    points = []
    for step in CHECKPOINTS:
        trained.advance(step)
        points.append(trained.losses_K.cpu())
    return torch.stack(points)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_graph_has_the_losses_of_the_same_steps_run_as_written(design: str) -> None:
    eager = trainer(design, (1e-3, 2e-3), STEPS)
    eager.step = eager._step
    difference = (curve(trainer(design, (1e-3, 2e-3), STEPS)) - curve(eager)).abs().max()
    print(design, "largest difference of losses", float(difference))
    assert difference < 0.02


@pytest.mark.parametrize("design", ["2xfull", "2xmamba2", "2xgated_deltanet"])
def test_batches_of_several_shapes_have_a_graph_each_and_the_losses_of_steps_run_as_written(design: str) -> None:
    """Released on the way, so that the graphs are captured a second time, from the middle of a round."""
    short, middle, large = Segment(64, 4), Segment(128, 8), Segment(256, 64)
    task = SegmentsTask(Segments(train=(short, middle, large), shares=(4, 1, 1), test=(short, large), vocab=512))
    protocol = proxy((1e-3, 2e-3), STEPS)
    graphs, eager = (Trainer(Design.parse(design), protocol, task, protocol.recall.training, GPU) for _ in range(2))
    eager.step = eager._step
    expected, found = curve(eager), []
    for step in CHECKPOINTS:
        graphs.advance(step)
        found.append(graphs.losses_K.cpu())
        if step == CHECKPOINTS[2]:
            assert isinstance(graphs.step, Graphs) and len(graphs.step.by_shapes) == 3
            assert all(each.graph is not None for each in graphs.step.by_shapes.values())
            graphs.release()
            assert not graphs.step.by_shapes
    difference = (torch.stack(found) - expected).abs().max()
    print(design, "largest difference of losses", float(difference))
    assert difference < 0.02
    assert {rung: figure.shape for rung, figure in graphs.measure("test").items()} == dict.fromkeys(task.rungs, (2,))


@pytest.mark.parametrize("design", ["4xfull", "4xdeltanet+full@3"])
def test_a_stack_of_six_has_the_losses_of_six_separate_trainings(design: str) -> None:
    rates = (2e-4, 4e-4, 6e-4, 1e-3, 1.5e-3, 2e-3)
    stacked = curve(trainer(design, rates, STEPS))
    alone = torch.cat([curve(trainer(design, (rate,), STEPS)) for rate in rates], 1)
    print(design, "largest difference of losses", float((stacked - alone).abs().max()))
    assert (stacked - alone).abs().max() < 0.02


def test_a_loss_that_is_not_finite_ends_that_replica_only() -> None:
    broken = trainer("2xfull", (1e-3, 2e-3, 3e-3), 30)
    broken.advance(10)
    broken.optimizer.groups[0].values[1, :1000] = math.nan
    broken.advance(20)
    assert broken.failed_at_K.tolist() == [-1, 10, -1]
    assert torch.isfinite(broken.optimizer.groups[0].values[[0, 2]]).all()
    figures = broken.measure("validation")["pairs_4"].flatten()
    assert torch.isnan(figures).tolist() == [False, True, False]
