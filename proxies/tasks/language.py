"""Language modelling on bytes: predict every next byte of a text.

tokens   d  e  f  _  f  (        labels   e  f  _  f  (  x
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from proxies.protocol import Language
from proxies.tasks.base import CPU, IGNORE, Batch, HeldOut, Task, stream
from proxies.text import Corpus, Part

WHOLE, REPEATED = "bits_per_byte", "bits_per_repeated"


def repeated_only(tokens_BT: Tensor, labels_BT: Tensor) -> Tensor:
    """The labels that end a bigram seen before in the same window; IGNORE elsewhere."""
    bigrams = tokens_BT * 256 + labels_BT
    same = bigrams.unsqueeze(2) == bigrams.unsqueeze(1)
    return labels_BT.masked_fill(~same.tril(-1).any(2), IGNORE)


class LanguageTask(Task):
    """Windows of `settings.length` bytes of a corpus. The second rung scores only bytes that end a bigram seen before
    in the window: what recall helps with. It is missing where there are none.

    Raises ValueError when a part of the corpus is shorter than one window.
    """

    vocab = 256
    higher_is_better = False
    deciding = (WHOLE,)

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
        whole = self._windows(self.parts[part], starts)
        again = repeated_only(whole.tokens, whole.labels)
        return {WHOLE: whole} | ({REPEATED: Batch(whole.tokens, again)} if (again != IGNORE).any() else {})

    def metric(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean bits a byte."""
        log_p = logits.float().log_softmax(-1)
        scored = labels != IGNORE
        nats = -log_p.gather(-1, (labels * scored).expand(logits.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        return (nats * scored).sum((1, 2)) / scored.sum() / math.log(2)

    def _windows(self, text: Tensor, starts: Tensor) -> Batch:
        index = starts.unsqueeze(1) + torch.arange(self.settings.length + 1, device=text.device)
        window = text[index].long()
        return Batch(window[:, :-1], window[:, 1:])
