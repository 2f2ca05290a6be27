"""The page about scores says what the code says."""

import re

import pytest

from docs.measurements import KEPT, expected_best, few_seed_intervals, kept
from docs.pictures import figures
from docs.tables import PAGE, filled
from proxies.ladders import LADDERS
from proxies.tasks import TASKS

TEXT = PAGE.read_text()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_on_the_page_with_its_chance_and_its_part_of_ruler(name: str) -> None:
    task, settings = TASKS[name], LADDERS[name]()
    (row,) = re.findall(rf"^\| `{name}` \|.*$", TEXT, re.MULTILINE)
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[2] == ", ".join(map(str, settings.loads))
    chances = {task(settings).chance(f"{name}_{load}") for load in settings.loads}
    assert [1 / int(chance.removeprefix("1/")) for chance in cells[3].split(", ")] == sorted(chances, reverse=True)
    assert float(cells[4]) == task.ceiling
    assert cells[5] == (", ".join(f"`{part}`" for part in task.ruler) or "none")
    assert re.search(rf"### `{name}`\n\n.*?\n    tokens  .*\n    labels  ", TEXT, re.DOTALL), "no drawn example"


def test_what_is_made_from_code_and_trainings_is_as_they_are_now() -> None:
    assert filled(TEXT, kept()) == TEXT, "run: make pictures"


def test_a_page_that_lost_a_part_is_refused() -> None:
    with pytest.raises(ValueError, match="has no part 'seeds'"):
        filled(TEXT.replace("<!-- made: seeds -->", ""), kept())


def test_every_picture_on_the_page_is_drawn_and_every_drawn_one_is_on_the_page() -> None:
    shown = re.findall(r"!\[.+?\]\((\w+)\.svg\)", TEXT)
    assert sorted(shown) == sorted(figures(kept()))
    for name in shown:
        assert (KEPT.parent / f"{name}.svg").read_text().startswith("<svg")


def test_the_best_of_all_is_the_best_and_the_best_of_one_is_the_mean() -> None:
    scores = [0.2, 0.9, 0.4, 0.5]
    assert expected_best(scores, 1) == pytest.approx(0.5)
    assert expected_best(scores, 2) == pytest.approx((3 * 0.9 + 2 * 0.5 + 0.4) / 6)
    assert expected_best(scores, 4) == 0.9


def test_groups_of_seeds_do_not_overlap() -> None:
    middles = [middle for middle, _, _ in few_seed_intervals([0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 0.5], 3)]
    assert middles == pytest.approx([0.2, 0.8])
