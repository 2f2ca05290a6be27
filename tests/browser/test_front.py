from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from space import SCALES, Design, cost
from tests.browser.conftest import RECALLS, SCREENSHOTS, finish, start_search

POINTS = ".js-plotly-plot .scatterlayer path.point"
BARS = ".js-plotly-plot .errorbar"
TABLE = "[data-testid=stDataFrame] table[role=grid]"
NUM_FAILED, NUM_RUNNING = 1, 1
SLOW = 60_000  # milliseconds


def num_on_front() -> int:
    places = [(-recall, cost(Design.parse(text), SCALES["340m"]).memory_bytes) for text, recall in RECALLS.items()]
    return sum(not any(a <= x and b <= y and (a, b) != (x, y) for a, b in places) for x, y in places)


def test_the_front_shows_a_point_and_a_row_for_each_evaluation(
    page: Page, serve: Callable[[str], str], store: str
) -> None:
    hosts = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
    page.goto(f"{serve(store)}/?search=hybrids")
    expect(page.locator(POINTS)).to_have_count(len(RECALLS), timeout=SLOW)
    expect(page.locator(BARS)).to_have_count(len(RECALLS))
    expect(page.get_by_role("heading", name="hybrids")).to_be_visible()
    numbers = {"finished": len(RECALLS), "on the front": num_on_front(), "running": NUM_RUNNING, "failed": NUM_FAILED}
    for label, number in numbers.items():
        metric = page.get_by_test_id("stMetric").filter(has=page.get_by_text(label, exact=True))
        expect(metric.get_by_test_id("stMetricValue")).to_have_text(str(number))

    rows = len(RECALLS) + NUM_FAILED + NUM_RUNNING
    expect(page.locator(TABLE)).to_have_attribute("aria-rowcount", str(rows + 1), timeout=SLOW)
    first = page.locator(TABLE).locator("tr[aria-rowindex='2']")
    for text in ("12xfull", "FFFFFFFFFFFF", "0.99", "0.960 to 1.000", "192", "complete"):
        expect(first).to_contain_text(text)

    page.wait_for_timeout(1000)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "front.png")
    assert page.get_by_test_id("stException").count() == 0
    assert page.get_by_test_id("stAppDeployButton").count() == 0
    assert hosts == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ("nothing-yet", "This search has no evaluations yet."),
        ("all-failed", "No design has finished: 1 failed. The most frequent reason: non_finite: recall."),
        ("no-such", "There is no search named 'no-such' here"),
    ],
)
def test_a_search_with_nothing_to_draw_says_why(
    search: str, sentence: str, page: Page, serve: Callable[[str], str], store: str
) -> None:
    page.goto(f"{serve(store)}/?search={search}")
    expect(page.get_by_test_id("stAlert").first).to_contain_text(sentence, timeout=SLOW)
    assert page.get_by_test_id("stException").count() == 0


def test_one_evaluation_is_drawn_and_the_link_to_it_survives_a_reload(
    page: Page, serve: Callable[[str], str], store: str
) -> None:
    page.goto(f"{serve(store)}/?search=single")
    expect(page.locator(POINTS)).to_have_count(1, timeout=SLOW)
    page.reload()
    expect(page.get_by_role("heading", name="single")).to_be_visible(timeout=SLOW)
    assert page.url.endswith("?search=single")


def test_a_missing_database_is_named_and_then_found_when_it_appears(
    page: Page, serve: Callable[[str], str], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'later.db'}"
    page.goto(serve(url))
    alert = page.get_by_test_id("stAlert")
    expect(alert).to_contain_text("later.db': no such file. Start a search with plait run", timeout=SLOW)

    finish(start_search(url, "later"), "12xgla", 0.5)
    page.reload()
    expect(page.locator(POINTS)).to_have_count(1, timeout=SLOW)


def test_picking_another_search_changes_the_page_and_its_link(
    page: Page, serve: Callable[[str], str], store: str
) -> None:
    page.goto(f"{serve(store)}/?search=single")
    expect(page.locator(POINTS)).to_have_count(1, timeout=SLOW)
    page.get_by_test_id("stSelectbox").get_by_role("combobox").click()
    page.get_by_role("option", name="hybrids").click()
    expect(page.locator(POINTS)).to_have_count(len(RECALLS), timeout=SLOW)
    expect(page).to_have_url(f"{serve(store)}/?search=hybrids")
