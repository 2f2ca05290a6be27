"""Each synthetic task solved from its tokens alone, one example at a time: what its labels are compared with.

A solver takes the settings, the load, the tokens up to a query and that alone, and returns the label.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

Tokens = list[int]


def bindings(context: Tokens) -> list[tuple[int, int]]:
    return list(zip(context[::2], context[1::2], strict=True))


def pairs(settings: Any, load: int, tokens: Tokens) -> int:
    (value,) = [value for key, value in bindings(tokens[: 2 * load]) if key == tokens[-1]]
    return value


def multi_key(settings: Any, load: int, tokens: Tokens) -> int:
    found = dict(bindings(tokens[: 2 * load]))
    assert len(found) == load and max(found) <= settings.num_keys < min(found.values())
    return found[tokens[-1]]


def multi_value(settings: Any, load: int, tokens: Tokens) -> int:
    context = 2 * settings.keys * load
    written = tokens[context:]
    start = max(index for index, token in enumerate(written) if 0 < token < settings.vocab // 2)
    values = [value for key, value in bindings(tokens[:context]) if key == written[start]]
    assert len(values) == load and written[start + 1 :] == values[: len(written) - start - 1]
    return values[len(written) - start - 1]


def overwrite(settings: Any, load: int, tokens: Tokens) -> int:
    found = dict(bindings(tokens[: 2 * settings.writes * load]))
    assert len(found) == load
    return found[tokens[-1]]


def k_hop(settings: Any, load: int, tokens: Tokens) -> int:
    context = bindings(tokens[: 2 * settings.chains * max(settings.loads)])
    found, here, hops = dict(context), tokens[-1], 0
    assert len(found) == len(context) and here not in found.values()
    while here in found:
        here, hops = found[here], hops + 1
    assert hops == load
    return here


def copy(settings: Any, load: int, tokens: Tokens) -> int:
    mark = tokens.index(settings.vocab - 1)
    assert mark == load and tokens[mark + 1 :] == tokens[: len(tokens) - mark - 1]
    return tokens[len(tokens) - mark - 1]


def noisy(settings: Any, load: int, tokens: Tokens) -> int:
    first_noise = settings.vocab - settings.noise
    heard = [token for token in tokens[: 2 * settings.pairs + load] if token < first_noise]
    assert len(heard) == 2 * settings.pairs and 0 not in tokens
    (place,) = [index for index, token in enumerate(tokens[: 2 * settings.pairs + load]) if token == tokens[-1]]
    return tokens[place + 1]


def fuzzy(settings: Any, load: int, tokens: Tokens) -> int:
    width = settings.motif + 1
    starts = range(0, width * load, width)
    found = {tuple(tokens[start : start + width - 1]): tokens[start + width - 1] for start in starts}
    assert len(found) == load
    return found[tuple(tokens[-settings.motif :])]


def needle(settings: Any, load: int, tokens: Tokens) -> int:
    assert len(tokens) == load + 3 and tokens.count(tokens[-1]) == 2
    assert sum(token < settings.vocab // 2 for token in tokens) == 2
    return tokens[tokens.index(tokens[-1]) + 1]


def counting(settings: Any, load: int, tokens: Tokens) -> int:
    first_rank = settings.vocab - settings.ranks
    counts = Counter(token for token in tokens if 0 < token < first_rank).most_common()
    rank = tokens[-1] - first_rank
    ranked = [settings.repeats * times for times in range(settings.ranks + 1, 1, -1)]
    assert [count for _, count in counts] == ranked + [settings.repeats] * (load - settings.ranks)
    return counts[rank][0]


def state_tracking(settings: Any, load: int, tokens: Tokens) -> int:
    if settings.group == "parity":
        return 1 + sum(token == 2 for token in tokens) % 2
    maps = {1 + r + 3 * f: tuple((r + (-1) ** f * corner) % 3 for corner in range(3)) for r in range(3) for f in (0, 1)}
    state = (0, 1, 2)
    for token in tokens:
        state = tuple(state[maps[token][corner]] for corner in range(3))  # type: ignore[assignment]
    return next(token for token, corners in maps.items() if corners == state)


SOLVERS: dict[str, Callable[[Any, int, Tokens], int]] = {
    solver.__name__: solver
    for solver in (
        pairs, multi_key, multi_value, overwrite, k_hop, copy, noisy, fuzzy, needle, counting, state_tracking,
    )
}  # fmt: skip
