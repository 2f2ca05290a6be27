"""Language modelling on characters, as nanoGPT's shakespeare_char: a vocabulary of the bytes that occur in a text.

tokens   T  o  _  b  e  ,        labels   o  _  b  e  ,  _
"""

import torch

from proxies.protocol import Language
from proxies.tasks.language import LanguageTask


class CharacterTask(LanguageTask):
    """Windows of a text whose tokens are the places of its bytes among those that occur, sorted.

    The first 90 % train; the last 10 % are both validation and test, for that is how nanoGPT reads its loss: there is
    no sealed part. Raises ValueError when a part is shorter than one window.
    """

    def __init__(self, settings: Language, text: bytes, source: str) -> None:
        self.settings = settings
        characters, tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).unique(return_inverse=True)
        self.characters = bytes(characters.tolist())
        self.vocab = len(characters)
        cut = int(0.9 * len(text))
        if min(cut, len(text) - cut) <= settings.length:
            raise ValueError(
                f"text = {source}: has {len(text)} bytes, a tenth must be more than the context of {settings.length}"
            )
        self.parts = {"train": tokens[:cut], "validation": tokens[cut:], "test": tokens[cut:]}
