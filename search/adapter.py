"""What Tune asks of a search: a Searcher and a Scheduler that only pass things on to the driver and back.

Tune pickles both for its own restore, which is not used: they pickle as nothing. An error of the driver's ends the run:
it is raised as Ended, because Tune takes every Exception for one of a trial's.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from search.driver import Driver, Next, Outcome

_LOOK_SECONDS = 5.0
# The sets of Tune's controller that nothing takes a finished trial from.
_KEEPERS = ("_live_trials", "_stopped_trials", "_failed_trials", "_trials_to_cache")


class Ended(BaseException):
    """The driver raised `error`, and the run ends."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def _ending() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise Ended(error) from error


class Suggesting(Searcher):
    """Gives each trial of Tune an evaluation, and the driver its end. `num_slots`, where given, says how many trainings
    can run at once, and is asked again and again."""

    def __init__(self, driver: Driver, num_slots: Callable[[], int] | None = None) -> None:
        super().__init__(metric="outcome", mode="max")
        self._driver, self._num_slots, self._looked = driver, num_slots, time.monotonic()
        self._evaluations: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def suggest(self, trial_id: str) -> Any:
        with _ending():
            if self._num_slots is not None and time.monotonic() - self._looked > _LOOK_SECONDS:
                self._looked = time.monotonic()
                self._driver.has_slots(self._num_slots())
            following = self._driver.next()
        if isinstance(following, Next):
            return Searcher.FINISHED if following is Next.FINISHED else None
        self._evaluations[trial_id] = following.evaluation
        return {"design": following.design.text}

    def measured(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial goes on."""
        evaluation = self._evaluations.get(trial_id)
        with _ending():
            return evaluation is not None and self._driver.measured(evaluation, Outcome.from_json(result["outcome"]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if error or not result:
            with _ending():
                self._driver.lost(self._evaluations[trial_id])
        else:
            self.measured(trial_id, result)
        self._evaluations.pop(trial_id)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the database is the only truth."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the study is rebuilt from the database."""


class Stopping(FIFOScheduler):
    """Stops a trial when the driver says so."""

    def __init__(self, searcher: Suggesting) -> None:
        super().__init__()
        self._searcher = searcher

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        goes_on = self._searcher.measured(trial.trial_id, result)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        forget_finished(tune_controller)
        return super().choose_trial_to_run(tune_controller)


class Quiet(TrialProgressCallback):
    """Takes the place of Tune's own, which keeps every trial that it hears of, also when it prints none."""

    def on_trial_result(self, *heard: Any, **info: Any) -> None: ...
    def on_trial_error(self, *heard: Any, **info: Any) -> None: ...
    def on_trial_complete(self, *heard: Any, **info: Any) -> None: ...


def forget_finished(tune_controller: Any) -> None:
    """Takes finished trials from where Tune keeps them until a run ends, so that memory does not grow with their
    number. The newest stays: Tune takes for granted that there is one. What another version of Ray keeps elsewhere
    stays there."""
    trials = tune_controller.get_trials()
    finished = [trial for trial in trials if trial.is_finished()][:-1]
    for trial in finished:
        trials.remove(trial)
    for name in _KEEPERS:
        keeper = getattr(tune_controller, name, None)
        if isinstance(keeper, set):
            keeper.difference_update(finished)
