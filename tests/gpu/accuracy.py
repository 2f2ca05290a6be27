"""Final accuracy on one recall task, five seeds, ours and the baseline from the same starts.

`python -m tests.gpu.accuracy` prints JSON with both means and their t intervals; they must agree within these.
"""

import json
import sys
from dataclasses import replace

import torch

from proxies.protocol import Training
from proxies.scoring import interval
from proxies.tasks import RecallTask
from proxies.trainer import Trainer
from space.design import Design
from tests.gpu.baseline import Baseline
from tests.gpu.proxy import GPU, proxy

SEEDS, STEPS = 5, 300


def main(text: str = "4xdeltanet+full@3") -> None:
    design = Design.parse(text)
    training = Training(steps=STEPS, batch=32, learning_rates=(2e-3,), num_seeds=SEEDS)
    protocol = proxy((2e-3,), STEPS)
    recall = replace(protocol.recall, training=training, length=128, vocab=128, pairs=(4, 8, 16, 32))
    protocol = replace(protocol, recall=recall, init_std=0.1, embedding_std=0.5)
    ours = Trainer(design, protocol, RecallTask(recall), training, GPU)
    starts = [ours.model.replica_state_dict(seed) for seed in range(SEEDS)]
    ours.advance(STEPS)
    figures = {"ours": torch.stack(list(ours.measure("test").values())).mean(0).tolist(), "baseline": []}
    for seed, start in enumerate(starts):
        baseline = Baseline(design, protocol, seed, {name: weight.float() for name, weight in start.items()})
        for _ in range(STEPS):
            baseline.step()
        figures["baseline"].append(baseline.accuracy())
    scores = {name: interval(values, 0.0, 1.0) for name, values in figures.items()}
    agree = scores["ours"].low <= scores["baseline"].high and scores["baseline"].low <= scores["ours"].high
    report = {name: {"mean": score.mean, "low": score.low, "high": score.high} for name, score in scores.items()}
    print(json.dumps({"design": text, "seeds": figures, "accuracy": report, "agree": agree}, indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
