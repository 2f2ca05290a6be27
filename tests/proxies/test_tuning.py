"""Tiles that plait ships: which one a kernel of fla takes."""

from contextlib import suppress
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")

import triton

from proxies.ops.tuning import _exercise, _Tiles

CONFIGS = [triton.Config({"BK": size}, num_warps=2, num_stages=3) for size in (16, 32, 64)]
CHOSEN = {
    "K=32 V=32 BT=64 bfloat16": [{"BK": 32}, 2, 3],
    "K=64 V=64 BT=64 bfloat16": [{"BK": 64}, 2, 3],
    "K=16 V=16 BT=32 bfloat16": [{"BK": 16}, 2, 3],
}


def _tiles() -> _Tiles:
    tuner = SimpleNamespace(keys=["B", "H", "K", "V", "BT"], configs=CONFIGS, cache={})
    return _Tiles(tuner, CHOSEN)


@pytest.mark.parametrize(("head", "tile"), [(16, 32), (32, 32), (48, 64), (64, 64), (256, 64)])
def test_a_head_size_that_was_never_tuned_takes_the_nearest_tile(head: int, tile: int) -> None:
    tiles, key = _tiles(), (7, 3, head, head, 64, "torch.bfloat16")
    assert key in tiles
    assert tiles[key].kwargs == {"BK": tile}


@pytest.mark.parametrize("key", [(7, 3, 16, 16, 128, "torch.bfloat16"), (7, 3, 16, 16, 64, "torch.float32")])
def test_another_chunk_or_dtype_is_left_to_triton(key: tuple[object, ...]) -> None:
    assert key not in _tiles()


def test_a_size_that_is_being_tuned_does_not_take_its_neighbours_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Tiles, "exact", False)
    with suppress(Exception):  # there may be no GPU to go on with
        _exercise("gla", 0)
    assert (7, 3, 16, 16, 64, "torch.bfloat16") not in _tiles()
    assert (7, 3, 32, 32, 64, "torch.bfloat16") in _tiles()
