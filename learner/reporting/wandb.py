"""Weights & Biases: one run per data folder and project, which continues after restarts.

It gets figures and the recipe only: no console output, code, package list, git state or machine metrics. W&B's own
variables (`WANDB_MODE`, `WANDB_API_KEY`, `WANDB_BASE_URL`…) apply; with `WANDB_MODE=offline` the figures stay in
DATA/wandb until `wandb sync`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openclaw_rl.learner.reporting.report import SinkError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe

INIT_SECONDS = 60.0


def configuration(settings: Settings) -> dict[str, Any]:
    """The configuration of a run: the recipe of its steps and how batches are made; no key, path or address."""
    learning = settings.learning
    recipe = learning.model_dump(include=set(Recipe.model_fields) - {"custom_loss"})
    names = ("batch_size", "grad_accumulation", "rehearsals", "anchors", "lora", "lora_rank", "lora_alpha")
    if learning.has_other_teacher:
        recipe["teacher"] = "another model"
    return recipe | {name: getattr(learning, name) for name in names} | {"votes": settings.judge.votes}


class WeightsAndBiases:
    """A `Sink` for the run `run_id`; W&B's step is the version's number. `project` is `project` or `entity/project`."""

    name = "wandb"

    def __init__(self, project: str, run_id: str, folder: Path, configuration: Mapping[str, Any]) -> None:
        self._entity, _, self._project = project.rpartition("/")
        self._run_id = run_id
        self._folder = folder
        self._configuration = configuration
        self._run: Any = None
        self._kept = 0
        self._buffered: list[tuple[int, int]] = []

    def open(self, last: int) -> int:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        try:
            import wandb
        except ImportError as error:
            how = install_command("wandb")
            raise SinkError(f"the package wandb is missing; install it with: {how}") from error
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._run = wandb.init(
                project=self._project,
                entity=self._entity or None,
                id=self._run_id,
                resume="allow",
                dir=None if os.environ.get("WANDB_DIR") else str(self._folder),
                config=dict(self._configuration),
                settings=wandb.Settings(
                    host="",
                    console="off",
                    silent=True,
                    save_code=False,
                    disable_git=True,
                    disable_code=True,
                    x_disable_stats=True,
                    x_disable_meta=True,
                    x_disable_machine_info=True,
                    x_save_requirements=False,
                    init_timeout=INIT_SECONDS,
                ),
            )
            self._kept, self._buffered = max(last, int(self._run.step) - 1), []
            return self._kept
        except (Exception, SystemExit) as error:
            raise SinkError(f"W&B: {type(error).__name__}: {error}") from error

    def write(self, version: int, time: float, figures: Mapping[str, float]) -> None:
        try:
            self._run.log(dict(figures), step=version, commit=True)
            self._buffered.append((version, self._size()))
        except Exception as error:
            raise SinkError(f"W&B: {type(error).__name__}: {error}") from error

    def kept(self) -> int:
        if self._run is not None:  # W&B's process writes its file some seconds later, all waiting figures at once
            size = self._size()
            while self._buffered and self._buffered[0][1] < size:
                self._kept = self._buffered.pop(0)[0]
        return self._kept

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            with contextlib.suppress(Exception):
                run.finish()
                self._kept = max([self._kept, *(version for version, _ in self._buffered)])

    def _size(self) -> int:
        """Bytes of the file that W&B keeps the run in."""
        try:
            return os.path.getsize(self._run.settings.sync_file)
        except OSError:
            return 0
