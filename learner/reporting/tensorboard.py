"""TensorBoard's event files, in DATA/tensorboard.

TensorBoard's own writer and reader are used: they need neither torch nor TensorFlow, and the package that shows the
files is the one that wrote them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openclaw_rl.learner.reporting.report import SinkError
from openclaw_rl.shared.extras import install_command


class TensorBoard:
    """A `Sink`: one record of the file per version, so that it is complete or missing; the files know the last one."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None
        self._written = 0

    def open(self, last: int) -> int:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            how = install_command("tensorboard")
            raise SinkError(f"the package tensorboard is missing; install it with: {how}") from error
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        try:
            last = self._last()
            self._writer = EventFileWriter(str(self._folder))
        except Exception as error:  # whatever the writer's own thread died of comes out here
            raise SinkError(f"{self._folder} cannot be written: {error}") from error
        self._written = last
        return last

    def write(self, version: int, time: float, figures: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in sorted(figures.items())]
        try:
            self._writer.add_event(self._event(wall_time=time, step=version, summary=self._summary(value=values)))
            self._writer.flush()
            self._written = version
        except Exception as error:  # whatever the writer's own thread died of comes out here
            raise SinkError(f"{self._folder} cannot be written: {error}") from error

    def kept(self) -> int:
        return self._written

    def close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()
            self._writer = None

    def _last(self) -> int:
        """The greatest step in the files; a record that is cut off does not count."""
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

        steps = [0]
        for file in sorted(self._folder.glob("events.out.tfevents.*")):
            steps += [event.step for event in LegacyEventFileLoader(str(file)).Load() if event.HasField("summary")]
        return max(steps)
