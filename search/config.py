"""What a search is asked to do: a TOML file, checked whole before anything starts.

Every key is a field of one of the dataclasses here or of `SearchSpace`; the fields document themselves, and `template`
writes those words. A key that is not known is refused with the nearest one that is.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from proxies.protocol import PROTOCOLS, Protocol, named
from space.cost import DTYPE_BYTES, matched
from space.design import nearest
from space.mixers import BACKBONES
from space.scale import SCALES
from space.space import SearchSpace

SAMPLERS = ("nsga2", "tpe", "random", "grid", "model")
MEASURED = ("recall", "recall_low", "lm_bits_per_byte")
METRICS = (*MEASURED, "memory_bytes", "parameters", "flops_per_token")
DIRECTIONS = ("max", "min")

QUICK_BACKBONES = ("hgrn", "retnet", "gla", "hgrn2", "deltanet", "gated_deltanet")  # those of the study
QUICK_SPACE = SearchSpace(depth=(4,), linear=QUICK_BACKBONES, num_attention=(0, 1, 2, 4))

SPACE_WORDS = {
    "depth": "numbers of layers",
    "linear": f"linear-attention backbones ({', '.join(BACKBONES)}), with options as in gla:conv=on",
    "attention": "kinds of attention layers: full, or a window such as window:size=128",
    "num_attention": "how many attention layers a design may have; include 0 and the depth for the controls",
    "placements": "where attention layers may sit: rules, or free for anywhere",
    "mixtures": "whether one design may mix several backbones",
}


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Where `memory_bytes` and `parameters` are counted: the scale and use a design is meant for."""

    scale: str = field(default="340m", metadata={"words": f"one of {', '.join(SCALES)}"})
    context: int = field(default=4096, metadata={"words": "tokens in the cache of one sequence"})
    dtype: str = field(default="bfloat16", metadata={"words": f"one of {', '.join(DTYPE_BYTES)}"})
    memory_limit: int = field(
        default=0, metadata={"words": "bytes; designs that need more are not trained; 0 means no limit"}
    )

    parameter_limit: int = field(default=0, metadata={"words": "the same for parameters"})
    flops_limit: int = field(default=0, metadata={"words": "the same for FLOPs a token"})

    def __post_init__(self) -> None:
        _one_of("deployment scale", self.scale, SCALES)
        _whole("deployment context", self.context, 1, 2**30)
        _one_of("deployment dtype", self.dtype, DTYPE_BYTES)
        for name in ("memory_limit", "parameter_limit", "flops_limit"):
            _whole(f"deployment {name}", getattr(self, name), 0, 2**60)

    @property
    def limits(self) -> dict[str, int]:
        """The most a design may have of each metric that is limited."""
        limits = {
            "memory_bytes": self.memory_limit,
            "parameters": self.parameter_limit,
            "flops_per_token": self.flops_limit,
        }
        return {name: limit for name, limit in limits.items() if limit}


@dataclass(frozen=True, kw_only=True)
class Halving:
    """How early stopping decides at a rung (asynchronous successive halving)."""

    reduction: float = field(default=2.0, metadata={"words": "one in this many goes on at each rung"})
    grace: float = field(default=0.3, metadata={"words": "share of the protocol's training before which nothing stops"})
    rivals: int = field(default=4, metadata={"words": "how many others must have reached a rung before it stops any"})
    audit: float = field(
        default=0.1,
        metadata={
            "words": "share of those that would stop that run on to the end, to tell how often stopping is wrong"
        },
    )

    def __post_init__(self) -> None:
        _number("halving reduction", self.reduction, 1.1, 100)
        _number("halving grace", self.grace, 0, 1)
        _whole("halving rivals", self.rivals, 1, 10**4)
        _number("halving audit", self.audit, 0, 1)


@dataclass(frozen=True, kw_only=True)
class Confirm:
    """How the front of a search is trained again, with fresh seeds and longer, as a search of its own."""

    after_run: bool = field(
        default=False, metadata={"words": "whether plait run ends with it; plait confirm does it at any time"}
    )
    probability: float = field(
        default=0.1,
        metadata={"words": "designs on the front with at least this probability are trained again, beside the front"},
    )
    protocol: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "words": "as in [protocol]; empty: confirm for screen, else twice the steps and two seeds more; seeds are "
            "always new"
        },
    )

    def __post_init__(self) -> None:
        if not isinstance(self.after_run, bool):
            raise ValueError(f"confirm after_run = {self.after_run!r}: must be true or false")
        _number("confirm probability", self.probability, 0.001, 1)
        if not isinstance(self.protocol, Mapping):
            raise ValueError(f"confirm protocol = {self.protocol!r}: must be a table, written [confirm.protocol]")


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """A search. Raises ValueError naming the field, its value and what is allowed."""

    name: str = field(default="quick", metadata={"words": "the search's name in the database"})
    storage: str = field(
        default="sqlite:///plait.db",
        metadata={
            "words": "sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME; the password may be in a file "
            "instead, named by PLAIT_PASSWORD_FILE"
        },
    )
    trials: int = field(default=20, metadata={"words": "how many designs to finish"})
    sampler: str = field(default="model", metadata={"words": f"how designs are proposed, one of {', '.join(SAMPLERS)}"})
    seed: int = field(default=0, metadata={"words": "seed of the proposals"})
    text: str = field(
        default="",
        metadata={"words": "file or folder of text for language modelling; empty: the Python standard library"},
    )
    cpus_per_trial: int = field(default=1, metadata={"words": "CPU cores each training uses"})
    gpus_per_trial: float | None = field(
        default=None,
        metadata={
            "words": "share of a GPU each training uses, as in 1 or 0.5; 0: the CPU; left out: 1 where there are GPUs",
            "example": 1,
        },
    )
    workers: int = field(
        default=0, metadata={"words": "trainings at the same time; 0: as many as the cores and GPUs allow"}
    )
    stopping: str = field(
        default="none",
        metadata={"words": f"early stopping: none, pareto, or one of the objectives {', '.join(MEASURED)}"},
    )
    objectives: dict[str, str] = field(
        default_factory=lambda: {"recall": "max", "memory_bytes": "min"},
        metadata={"words": f"max or min of one to three of {', '.join(METRICS)}"},
    )
    confirms: str | None = field(
        default=None,
        metadata={
            "words": "a search whose front is trained again, instead of new designs; plait confirm sets it",
            "example": "quick",
        },
    )
    confirm: Confirm = field(default_factory=Confirm, metadata={"words": "how the front is trained again in the end"})
    halving: Halving = field(default_factory=Halving, metadata={"words": "how early stopping decides at a rung"})
    protocol: dict[str, Any] = field(
        default_factory=lambda: {"name": "quick"},
        metadata={
            "words": f"name: one of {', '.join(PROTOCOLS)}; any other key changes it, as in recall.training.steps = 800"
            " or, of a mixture, recall.ladders.copy.loads = [8, 16] (a ladder more) and recall.ladders.k_hop = false"
        },
    )
    deployment: Deployment = field(
        default_factory=Deployment, metadata={"words": "where memory and parameters are counted"}
    )
    space: SearchSpace = field(
        default_factory=lambda: QUICK_SPACE, metadata={"words": "the designs that may be proposed"}
    )

    def __post_init__(self) -> None:
        for name in ("name", "storage"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise ValueError(f"{name} = {getattr(self, name)!r}: must be text of at least one character")
        if not isinstance(self.text, str):
            raise ValueError(f"text = {self.text!r}: must be a path")
        _whole("trials", self.trials, 1, 10**6)
        _one_of("sampler", self.sampler, SAMPLERS)
        _whole("seed", self.seed, 0, 2**31 - 1)
        _whole("cpus_per_trial", self.cpus_per_trial, 1, 1024)
        _share("gpus_per_trial", self.gpus_per_trial)
        _whole("workers", self.workers, 0, 10**4)
        if not 1 <= len(self.objectives) <= 3:
            raise ValueError(f"objectives = {list(self.objectives)}: must be one to three of {', '.join(METRICS)}")
        for metric, direction in self.objectives.items():
            _one_of("objectives key", metric, METRICS)
            _one_of(f"objectives {metric}", direction, DIRECTIONS)
        measured = [metric for metric in self.objectives if metric in MEASURED]
        _one_of("stopping", self.stopping, ("none", "pareto", *measured))
        if self.stopping == "pareto" and not measured:
            raise ValueError(f"stopping = 'pareto': must have an objective among {', '.join(MEASURED)}")
        before_the_end = self.proxy.rungs[-2] if len(self.proxy.rungs) > 1 else 0.0
        if self.stopping != "none" and self.halving.grace > before_the_end:
            raise ValueError(
                f"stopping = {self.stopping!r}: must have a rung of protocol {self.proxy.name!r}, whose rungs are "
                f"{list(self.proxy.rungs)}, between halving grace = {self.halving.grace} and the end"
            )
        for protocol in (self.proxy, _asked(self.confirming, "confirm protocol")):
            self.space.check(protocol.scale)
        self.space.check(matched(None, SCALES[self.deployment.scale], self.proxy.match))

    @cached_property
    def proxy(self) -> Protocol:
        """The protocol asked for, before a text is chosen."""
        return _asked(self.protocol, "protocol")

    @property
    def confirming(self) -> dict[str, Any]:
        """The protocol under which the front is trained again. Its seeds follow the last that this search uses."""
        table: dict[str, Any] = dict(self.confirm.protocol)
        if not table:
            table = {"name": "confirm"} if self.protocol == {"name": "screen"} else self._longer()
        later = _asked(table, "confirm protocol")
        for name in ("recall", "language"):
            first = max(getattr(later, name).training.first_seed, getattr(self.proxy, name).training.fresh.stop)
            table = _merged(table, {name: {"training": {"first_seed": first}}})
        return table

    def _longer(self) -> dict[str, Any]:
        """The protocol with twice the steps and two seeds more."""
        table = dict(self.protocol)
        for name in ("recall", "language"):
            training = getattr(self.proxy, name).training
            seeds = "fresh_seeds" if training.fresh_seeds else "num_seeds"
            changes = {"steps": min(10**7, 2 * training.steps), seeds: min(64, getattr(training, seeds) + 2)}
            table = _merged(table, {name: {"training": changes}})
        return table

    def with_options(self, **options: Any) -> "SearchConfig":
        """This config with those options that are not None."""
        return replace(self, **{name: value for name, value in options.items() if value is not None})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SearchConfig":
        """The search that `data` describes; what it leaves out is as in the built-in search."""
        _known(data, (item.name for item in fields(cls)), "")
        values = dict(data)
        for name in ("objectives", "protocol", "deployment", "halving", "confirm", "space"):
            if name in values and not isinstance(values[name], Mapping):
                raise ValueError(f"{name} = {values[name]!r}: must be a table, written [{name}]")
        tables: tuple[tuple[str, Any], ...] = (("deployment", Deployment), ("halving", Halving), ("confirm", Confirm))
        for name, kind in tables:
            if name in values:
                _known(values[name], (item.name for item in fields(kind)), f"{name} ")
                values[name] = kind(**values[name])
        if "space" in values:
            values["space"] = _space(values["space"])
        for name in ("objectives", "protocol"):
            if name in values:
                values[name] = dict(values[name])
        return cls(**values)

    @classmethod
    def read(cls, path: Path) -> "SearchConfig":
        """The search in a TOML file. Raises ValueError naming the file and what is wrong in it."""
        try:
            return cls.from_dict(tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise ValueError(f"config = {path}: cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"config = {path}: is not TOML: {error}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _asked(table: Mapping[str, Any], where: str) -> Protocol:
    overrides = dict(table)
    if "name" not in overrides:
        raise ValueError(f"{where} name: missing, must be one of {', '.join(PROTOCOLS)}")
    return named(overrides.pop("name"), overrides)


def _merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the changes, tables inside it too."""
    inner = {
        key: _merged(table[key], value)
        for key, value in changes.items()
        if isinstance(value, Mapping) and isinstance(table.get(key), Mapping)
    }
    return {**table, **changes, **inner}


def _words(item: "Field[Any]") -> str:
    return str(item.metadata["words"])


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _space(data: Mapping[str, Any]) -> SearchSpace:
    _known(data, SPACE_WORDS, "space ")
    kinds = {"depth": int, "num_attention": int, "mixtures": bool}
    values: dict[str, Any] = {}
    for name, value in data.items():
        kind = kinds.get(name, str)
        if kind is bool:
            if not isinstance(value, bool):
                raise ValueError(f"space {name} = {value!r}: must be true or false")
            values[name] = value
            continue
        if not isinstance(value, list) or any(type(entry) is not kind for entry in value):
            raise ValueError(
                f"space {name} = {value!r}: must be a list of {'whole numbers' if kind is int else 'texts'}"
            )
        values[name] = tuple(value)
    for name in ("depth", "linear"):
        values.setdefault(name, getattr(QUICK_SPACE, name))
    return SearchSpace(**values)


def _known(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    names = list(known)
    for key in data:
        if key not in names:
            raise ValueError(f"{where}key {key!r}: must be one of {', '.join(names)}{nearest(key, names)}")


def _one_of(where: str, value: Any, known: Iterable[str]) -> None:
    names = list(known)
    if value not in names:
        raise ValueError(f"{where} = {value!r}: must be one of {', '.join(names)}{nearest(str(value), names)}")


def _whole(where: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{where} = {value!r}: must be a whole number in {low}..{high}")


def _number(where: str, value: Any, low: float, high: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{where} = {value!r}: must be a number in {low}..{high}")


def _share(where: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and (value == 0 or 0.01 <= value <= 1)):
        raise ValueError(f"{where} = {value!r}: must be 0 for the CPU, or a share of one GPU in 0.01..1")


BUILT_IN = {"quick": SearchConfig()}


def template(config: SearchConfig = BUILT_IN["quick"]) -> str:
    """A commented TOML file that reads back as `config`."""
    lines = ["# A search. Run it with: plait run --config search.toml", ""]
    tables: list[str] = []
    for item in fields(config):
        value = getattr(config, item.name)
        if isinstance(value, SearchSpace):
            words = [(name, SPACE_WORDS[name], entry) for name, entry in value.to_dict().items()]
        elif isinstance(value, Deployment | Halving | Confirm):
            words = [(part.name, _words(part), getattr(value, part.name)) for part in fields(value)]
        elif isinstance(value, dict):
            words = [(name, "", entry) for name, entry in value.items()]
        else:
            entry = (
                f"# {item.name} = {_toml(item.metadata['example'])}"
                if value is None
                else f"{item.name} = {_toml(value)}"
            )
            lines += [f"# {_words(item)}", entry, ""]
            continue
        tables += [f"[{item.name}]", f"# {_words(item)}"]
        for name, comment, entry in words:
            tables += [f"# {comment}"] if comment else []
            tables += [f"{name} = {_toml(entry)}"]
        tables.append("")
    return "\n".join(lines + tables)
