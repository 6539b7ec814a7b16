"""Errors of an update, whose requests are sent together."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
import tinker

from openclaw_rl.trainer_cloud.client_training import ClientTraining
from openclaw_rl.trainer_cloud.futures import finished
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Pass

ADAM = Adam(1e-4, 0.9, 0.95, 1e-12, 0.0, 1.0)


class FailingClient:
    """A library's client whose calls end in the given errors, one after the other; `None` is an answer."""

    def __init__(self, *errors: CloudError | None) -> None:
        self._errors = list(errors)

    def _answer(self, *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        error = self._errors.pop(0)
        future.set_result(None) if error is None else future.set_exception(error)
        return future

    forward_backward = optim_step = forward = _answer


class PlainTraining(ClientTraining):
    """Awaits its client's futures as they are."""

    async def finish(self, given: Any, doing: str) -> Any:
        return await finished(given, 10.0, who="Tinker", doing=doing, translate=lambda error: CloudError("", "away"))


def error(words: str, *, undone: bool) -> CloudError:
    return CloudError(words, "limit", undone=undone)


@pytest.mark.parametrize(
    ("errors", "undone"),
    [
        ([error("first", undone=True), error("step", undone=True)], True),
        ([error("first", undone=True), error("step", undone=False)], False),
        ([error("first", undone=True), None], False),
        ([None, error("first", undone=True)], False),
    ],
    ids=["none taken", "one of unknown fate", "the step was taken", "the pass was taken"],
)
async def test_an_update_was_not_taken_only_if_none_of_its_requests_was(
    errors: list[CloudError | None], undone: bool
) -> None:
    training = PlainTraining(FailingClient(*errors), tinker.types, who="Tinker")
    datum = Datum([1, 2], np.array([2, 3]), weights=np.ones(2, dtype=np.float32))
    with pytest.raises(CloudError, match="first") as caught:
        await training.update([Pass("cross_entropy", [datum])], ADAM)
    assert caught.value.undone is undone
