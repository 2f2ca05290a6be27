"""What is too large is refused before a worker is used, with the reason."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from search.config import Deployment, SearchConfig
from search.driver import design_costs
from search.store import queries
from space import Design, SearchSpace
from tests.search.driving import database, drive, scores

CONFIG = SearchConfig(
    name="s", trials=100, sampler="random", space=SearchSpace(depth=(4,), linear=("gla", "hgrn"), placements=("free",))
)


@pytest.mark.parametrize(
    ("limit", "metric"),
    [("memory_limit", "memory_bytes"), ("parameter_limit", "parameters"), ("flops_limit", "flops_per_token")],
)
def test_a_design_over_a_limit_is_infeasible_and_never_trained(tmp_path: Path, limit: str, metric: str) -> None:
    costs = {design.text: design_costs(CONFIG, design)[metric] for design in CONFIG.space.enumerate()}
    most = sorted(costs.values())[len(costs) // 2]
    config = replace(CONFIG, deployment=Deployment(**{limit: int(most)}))
    trained = []

    def score(design: Design, budget: float) -> dict[str, float]:
        trained.append(design.text)
        return scores(design, budget)

    driver = drive(config, database(tmp_path), score)
    fits = {text for text, needed in costs.items() if needed <= most}
    assert driver.exhausted and set(trained) == fits and driver.finished == len(fits)
    with Session(database(tmp_path)) as session:
        refused = queries.evaluations(session, "s", ("infeasible",))
    assert {row.design for row in refused} == costs.keys() - fits
    for row in refused:
        assert row.reason == f"{metric} = {costs[row.design]:.0f}: must be at most {int(most)}"


@pytest.mark.parametrize("name", ["memory_limit", "parameter_limit", "flops_limit"])
def test_a_limit_that_is_no_whole_number_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"deployment {name} = -1: must be a whole number in 0"):
        SearchConfig.from_dict({"deployment": {name: -1}})
