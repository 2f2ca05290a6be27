"""Text for language modelling, as bytes in three disjoint parts: train, validation and a sealed test.

The default text is the source of the Python standard library, which every machine has. Files are put in an order given
by a hash of their names, so that each part holds a fair sample of them, and cut once at 90 % and once at 95 %.
"""

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Part = Literal["train", "validation", "test"]
PARTS: dict[Part, tuple[float, float]] = {"train": (0.0, 0.9), "validation": (0.9, 0.95), "test": (0.95, 1.0)}
MIN_BYTES = 20_000
_NOT_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}


@dataclass(frozen=True)
class Corpus:
    """A text, where it came from, and the digest (16 hexadecimal digits of SHA-256) that goes into a protocol."""

    data: bytes
    source: str

    def __post_init__(self) -> None:
        if len(self.data) < MIN_BYTES:
            raise ValueError(f"text = {self.source}: has {len(self.data)} bytes, must have at least {MIN_BYTES}")

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()[:16]

    def part(self, name: Part) -> bytes:
        low, high = PARTS[name]
        return self.data[int(low * len(self.data)) : int(high * len(self.data))]

    @classmethod
    def load(cls, path: str | Path | None = None) -> "Corpus":
        """The text at `path`, a file or a folder of files; the Python standard library's source when None.

        Raises ValueError when the path is missing, unreadable, or holds fewer than MIN_BYTES bytes of text.
        """
        if path is None:
            root = Path(sysconfig.get_path("stdlib"))
            return cls(_join(root, _library(root)), "Python standard library")
        root = Path(path)
        if not root.exists():
            raise ValueError(f"text = {root}: no such file or folder")
        try:
            if root.is_file():
                return cls(root.read_bytes(), str(root))
            return cls(_join(root, _files(root)), str(root))
        except OSError as error:
            raise ValueError(f"text = {root}: cannot be read: {error.strerror}") from None


def _library(root: Path) -> Iterator[Path]:
    for path in root.rglob("*.py"):
        if not _NOT_LIBRARY & set(path.relative_to(root).parts):
            yield path


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        if path.is_file() and not hidden:
            yield path


def _join(root: Path, paths: Iterator[Path]) -> bytes:
    def order(path: Path) -> bytes:
        return hashlib.sha256(path.relative_to(root).as_posix().encode()).digest()

    texts = (path.read_bytes() for path in sorted(paths, key=order))
    return b"\n".join(text for text in texts if b"\0" not in text)
