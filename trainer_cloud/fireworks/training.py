"""A LoRA in training at Fireworks. The SDK refuses everything after a request that failed to be submitted, and so does
this: the caller makes a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.client_training import ClientTraining
from openclaw_rl.trainer_cloud.fireworks.sdk import Leash, library, to_cloud_error
from openclaw_rl.trainer_cloud.futures import finished, in_thread, submitted
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Pass, Updated

_CLOSE_SECONDS = 5.0
_LONGEST_LABEL = 54  # the SDK adds "-" and eight digits, and a label has 63 characters at most


class FireworksTraining(ClientTraining):
    """A client of the SDK as a `Training`. `place` makes the path of a sampler snapshot one that stays true outside
    this session, `job` is the trainer job of dedicated machines ("" on shared ones).
    """

    def __init__(self, client: Any, settings: Settings, *, place: Callable[[Any], str], job: str = "") -> None:
        super().__init__(client, library().types, who="Fireworks")
        # Half the time-out: a refusal arrives before it is taken for silence.
        self._leash = Leash(client.holder, settings.serve.request_timeout / 2)
        client.holder = self._leash
        self._settings = settings
        self._place = place
        self._job = job

    @property
    def usable(self) -> bool:
        """True if it still takes requests."""
        return not self._leash.cut and getattr(self.client, "_sequence_error", None) is None

    async def load(self, path: str) -> None:
        """Continue from a state of `save_state`, optimizer included. Raises `CloudError`."""
        reference = path.partition("#")[0]  # older checkpoints have a label there
        own = f"cross_job://{self._job}/"
        if self._job and reference.startswith(own):
            reference = reference.removeprefix(own)
        load = self.client.load_state_with_optimizer
        if "://" in reference and not reference.startswith("cross_job://"):
            # Another server's path, which Fireworks' own class would refuse before it is sent.
            above: Any = super(library().FiretitanTrainingClient, self.client)
            load = above.load_state_with_optimizer
        await self.finish(submitted(load, reference), f"loading {reference}")

    async def update(self, passes: Sequence[Pass], adam: Adam, *, after: Sequence[Datum] = ()) -> Updated:
        # No answer shows that a step did not happen: after an error its state is not known.
        try:
            return await super().update(passes, adam, after=after)
        except BaseException as error:
            self._leash.cut = True
            if isinstance(error, CloudError):
                error.undone = False
            raise

    async def save_state(self, name: str) -> str:
        path = str((await self.finish(submitted(self.client.save_state, _label(name)), "saving the state")).path)
        # On dedicated machines a path is a name within a job, and another job may have to find it.
        return f"cross_job://{self._job}/{path}" if self._job and "/" not in path else path

    async def save_sampler(self, name: str) -> str:
        label = _label(name)

        def save() -> str:
            return self._place(self.client.save_weights_for_sampler_ext(label, checkpoint_type="base"))

        return str(await self.finish(in_thread(save, "fireworks"), "saving the weights"))

    async def close(self) -> None:
        self._leash.cut = True
        with contextlib.suppress(Exception):  # whatever the library does at its end
            self.client.holder = self._leash.holder
            unloading = asyncio.wrap_future(self.client.unload_model().future())
            unloading.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([unloading], timeout=_CLOSE_SECONDS)

    async def finish(self, given: Any, doing: str) -> Any:
        translate = functools.partial(self._translate, doing=doing)
        try:
            return await finished(
                given, self._settings.serve.request_timeout, who="Fireworks", doing=doing, translate=translate
            )
        except CloudError as error:
            if not error.undone or not self.usable:
                self._leash.cut, error.undone = True, False
            raise

    def _translate(self, error: Exception, *, doing: str) -> CloudError:
        if "sequence failed" in str(error) and error.__cause__ is not None:
            return CloudError(f"an earlier request failed, and Fireworks' client with it: {error.__cause__}", "away")
        return to_cloud_error(error, model=self._settings.engine.model, doing=doing)


def _label(name: str) -> str:
    """A checkpoint's name as Fireworks takes it: a DNS label."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST_LABEL].strip("-") or "checkpoint"
