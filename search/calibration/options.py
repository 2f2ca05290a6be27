"""What a calibration is asked for, apart from its parts."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proxies.ladders import check
from search.calibration.kept import Kept
from search.calibration.verdict import Row

if TYPE_CHECKING:
    import torch

Say = Callable[[str], None]
PARTS = ("mqar", "text", "study")
DEVICES = ("auto", "cpu", "gpu")


@dataclass(frozen=True, kw_only=True)
class Options:
    """`only` is a part of cells' names.

    `seeds`, `steps`, `batch` and `examples` (held-out ones a rung) replace the reference's own for a short look. `sets`
    are other settings of mqar, for what its source leaves open.
    The study's scores come from the search `name` in `storage`, or are made under `protocol` at `depth`.
    Raises ValueError naming the field, its value and what is allowed.
    """

    device: str = "auto"
    seeds: int | None = None
    steps: int | None = None
    batch: int | None = None
    examples: int | None = None
    only: str = ""
    text: str | None = None
    storage: str = ""
    name: str | None = None
    protocol: str | None = None
    depth: int = 24
    sets: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ValueError(f"device = {self.device!r}: must be one of {', '.join(DEVICES)}")
        for name, high in (("seeds", 64), ("steps", 10**7), ("batch", 2**16), ("examples", 2**20)):
            if getattr(self, name) is not None:
                check("calibrate", name, getattr(self, name), 1, high)
        check("calibrate", "depth", self.depth, 1, 256)
        if self.name is not None and self.protocol is not None:
            raise ValueError("name and protocol: give one, a search to read or a protocol to run")

    @property
    def changes(self) -> dict[str, int]:
        """What replaces the reference's own training."""
        asked = {"seeds": self.seeds, "steps": self.steps, "batch": self.batch, "num_examples": self.examples}
        return {key: value for key, value in asked.items() if value is not None}

    def short(self, settings: Mapping[str, Any]) -> bool:
        """Whether these changes make less of the reference's training, or another."""
        return any(settings[name] != value for name, value in self.changes.items())


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE words as a dictionary, values as JSON or else as text. Raises ValueError for other words."""
    found = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not key or not sign:
            raise ValueError(f"set = {word!r}: must be KEY=VALUE")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


@dataclass(frozen=True)
class Bench:
    """Where cells are made: what is asked, where they are kept, what trains them, and who hears of it."""

    options: Options
    kept: Kept
    device: "torch.device"
    say: Say

    def cell(
        self, name: str, settings: Mapping[str, Any], run: Callable[["torch.device", Say], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The cell `name` as kept, or made now and kept.

        What a cell fails of is in it as `failure`; such a cell is not kept.
        """
        found = self.kept.get(name, settings)
        if found is not None:
            self.say(f"{name}: kept in {self.kept.path.name}")
            return found
        self.say(f"{name}: started")
        try:
            return self.kept.put(name, settings, run(self.device, lambda words: self.say(f"  {words}")))
        except (FloatingPointError, MemoryError, RuntimeError) as error:
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            self.say(f"  failed: {reason}")
            return {"name": name, "failure": reason}

    def chosen(self, names: list[str]) -> list[str]:
        """Those of `names` that `only` asks for."""
        return [name for name in names if self.options.only in name]


def failed(part: str, name: str, theirs: str, reason: str) -> Row:
    """The row of a cell that has no figure."""
    return Row(part=part, name=name, theirs=theirs, ours="-", verdict=f"failed: {reason}", failed=True)
