"""The proxy these tests and the benchmark train: width 128, heads of 64, length 256, 32 examples a replica."""

from dataclasses import replace

import torch

from proxies.protocol import Protocol, Training, named
from proxies.tasks import RecallTask
from proxies.trainer import Trainer
from space.design import Design

GPU = torch.device("cuda")


def proxy(rates: tuple[float, ...], steps: int) -> Protocol:
    training = Training(steps=steps, batch=32, learning_rates=rates, num_seeds=1)
    base = named("quick", {"width": 128, "heads": 2, "state_heads": 2, "mlp_dim": 256})
    recall = replace(base.recall, training=training, vocab=512, length=256, pairs=(4, 8, 16, 32), filler="zero")
    return replace(base, recall=recall)


def trainer(design: str, rates: tuple[float, ...], steps: int) -> Trainer:
    protocol = proxy(rates, steps)
    return Trainer(Design.parse(design), protocol, RecallTask(protocol.recall), protocol.recall.training, GPU)
