"""The configuration of a run at Weights & Biases. `tests/real/test_wandb.py` has the rest."""

from __future__ import annotations

from openclaw_rl.learner.reporting.wandb import configuration
from openclaw_rl.shared.settings.settings import Settings


def test_another_teacher_is_named_without_its_folder_address_and_secret() -> None:
    given = Settings(method="opd", teacher="engine:/home/ann/model@http://bearer:s3cret@127.0.0.1:9")
    assert configuration(given)["teacher"] == "another model"
    assert configuration(Settings(method="opd", teacher="live"))["teacher"] == "live"
