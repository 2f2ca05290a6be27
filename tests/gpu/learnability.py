"""How many seeds of pure attention solve 32 pairs at length 256 under `screen`, at each learning rate.

`python -m tests.gpu.learnability` prints JSON: the share of seeds with accuracy 0.9 or more by rung, on validation
data, its mean after each quarter of the training, and the seconds that it took. Options change the protocol, as in the
tables of docs/scores.md: `--init-std 0.1 --growth 0 --steps 3000 --rates 1e-3 3e-3 --seeds 3`, or `4xdeltanet --heads 2
--vocab 256 --pairs 2 8 16 32 63 --seeds 3`. `--heads` are those of attention, and of linear layers too without
`--state-heads`. What is small runs with `--device cpu`.
"""

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import torch

from proxies.ladders import Ladder, MultiKey
from proxies.protocol import Suite, named
from proxies.scoring import solved_share
from proxies.tasks import recall_task
from proxies.trainer import Trainer
from space.design import Design


def main() -> None:
    screen = named("screen")
    assert isinstance(screen.recall, Suite)
    training = screen.recall.training
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("design", nargs="?", default="4xfull")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=training.steps)
    parser.add_argument("--batch", type=int, help="left out: one example of each load")
    parser.add_argument("--rates", type=float, nargs="+", default=training.learning_rates)
    parser.add_argument("--growth", type=float, default=screen.recall.growth)
    parser.add_argument("--init-std", type=float, default=screen.init_std)
    parser.add_argument("--embedding-std", type=float, default=screen.embedding_std)
    parser.add_argument("--ladders", nargs="*", default=[ladder.task for ladder in screen.recall.ladders])
    parser.add_argument("--width", type=int, default=screen.width)
    parser.add_argument("--heads", type=int, default=screen.heads)
    parser.add_argument("--state-heads", type=int)
    parser.add_argument("--vocab", type=int, default=screen.recall.ladders[0].vocab)
    parser.add_argument("--pairs", type=int, nargs="+", help="the loads of pairs")
    parser.add_argument("--multi-key", type=int, nargs="+", default=[], help="one more ladder: loads of multi_key")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    asked = parser.parse_args()
    started = time.monotonic()
    ladders: tuple[Ladder, ...] = tuple(
        replace(
            ladder,
            vocab=asked.vocab,
            **({"loads": tuple(asked.pairs)} if asked.pairs and ladder.task == "pairs" else {}),
        )
        for ladder in screen.recall.ladders
        if ladder.task in asked.ladders
    )
    if asked.multi_key:
        loads = tuple(asked.multi_key)
        ladders += (MultiKey(vocab=asked.vocab, length=screen.recall.ladders[0].length, loads=loads, queries=16),)
    training = replace(
        training, steps=asked.steps, batch=asked.batch or sum(len(ladder.loads) for ladder in ladders),
        learning_rates=tuple(asked.rates), num_seeds=asked.seeds,
    )  # fmt: skip
    recall = replace(screen.recall, training=training, ladders=ladders, growth=asked.growth)
    protocol = replace(
        screen, recall=recall, init_std=asked.init_std, embedding_std=asked.embedding_std, width=asked.width,
        heads=asked.heads, state_heads=asked.state_heads or asked.heads, mlp_dim=2 * asked.width,
    )  # fmt: skip
    trained = Trainer(Design.parse(asked.design), protocol, recall_task(recall), training, asked.device)
    found, means = {}, {}
    for quarter in ("1/4", "2/4", "3/4", "4/4"):
        trained.advance(training.steps * int(quarter[0]) // 4)
        found = {rung: figures.view(-1, asked.seeds) for rung, figures in trained.measure("validation").items()}
        means[quarter] = {rung: [round(mean, 3) for mean in each.mean(1).tolist()] for rung, each in found.items()}
    report: dict[str, Any] = {
        **vars(asked),
        "device": torch.cuda.get_device_name() if asked.device.type == "cuda" else "cpu",
        "solved_share": {rung: [solved_share(seeds) for seeds in figures.tolist()] for rung, figures in found.items()},
        "accuracy": means,
    }
    print(json.dumps(report | {"seconds": round(time.monotonic() - started, 1)}, indent=2))


if __name__ == "__main__":
    main()
