"""Language modelling on bytes: predict every next byte of a text.

tokens   d  e  f  _  f  (        labels   e  f  _  f  (  x
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from proxies.protocol import Language
from proxies.tasks.base import CPU, Batch, HeldOut, Task, stream
from proxies.text import Corpus, Part


class LanguageTask(Task):
    """Windows of `settings.length` bytes of a corpus; the one rung is named `bits_per_byte`.

    Raises ValueError when a part of the corpus is shorter than one window.
    """

    vocab = 256
    higher_is_better = False

    def __init__(self, settings: Language, corpus: Corpus) -> None:
        self.settings = settings
        self.parts: dict[Part, Tensor] = {}
        for part in ("train", "validation", "test"):
            data = corpus.part(part)
            if len(data) <= settings.length:
                raise ValueError(
                    f"text = {corpus.source}: its {part} part has {len(data)} bytes, "
                    f"must have more than the context of {settings.length}"
                )
            self.parts[part] = torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def training(self, seed: int, batch: int, device: torch.device = CPU) -> Iterator[Batch]:
        generator = stream("language train", seed, device)
        text = self.parts["train"].to(device)
        last = len(text) - self.settings.length
        while True:
            yield self._windows(text, torch.randint(last, (batch,), generator=generator, device=device))

    def held_out(self, part: HeldOut) -> dict[str, Batch]:
        last = len(self.parts[part]) - self.settings.length - 1
        starts = torch.linspace(0, last, self.settings.num_examples).long()
        return {"bits_per_byte": self._windows(self.parts[part], starts)}

    def metric(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean bits a byte."""
        log_p = logits.float().log_softmax(-1)
        nats = -log_p.gather(-1, labels.expand(logits.shape[:-1]).unsqueeze(-1))
        return nats.mean((1, 2, 3)) / math.log(2)

    def _windows(self, text: Tensor, starts: Tensor) -> Batch:
        index = starts.unsqueeze(1) + torch.arange(self.settings.length + 1, device=text.device)
        window = text[index].long()
        return Batch(window[:, :-1], window[:, 1:])
