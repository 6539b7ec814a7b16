from __future__ import annotations

import re
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.cloud import FireworksMode
from openclaw_rl.shared.settings.settings import SETTINGS, Settings, shown, to_environment
from openclaw_rl.shared.settings.sources import load, parse_flags
from openclaw_rl.shared.trainer import Recipe


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, so that no openclaw-rl.toml but the test's is found."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str) -> None:
    (folder / "openclaw-rl.toml").write_text(text)


def test_defaults_serve_the_shipped_policy_on_loopback() -> None:
    settings, sources = load(environ={})
    assert (settings.serve.host, settings.serve.port, settings.engine.backend) == ("127.0.0.1", 30000, "embedded")
    assert settings.learning.method == "rehearse"
    assert set(sources) == set(SETTINGS)
    assert set(sources.values()) == {"default"}


def test_each_source_outranks_the_weaker_ones(elsewhere: Path) -> None:
    write(elsewhere, "port = 1001\nbatch_size = 11\nseed = 21")
    environ = {"OPENCLAW_RL_PORT": "1002", "OPENCLAW_RL_BATCH_SIZE": "12"}
    settings, sources = load({"port": "1003"}, environ=environ)
    assert (settings.serve.port, settings.learning.batch_size, settings.learning.seed) == (1003, 12, 21)
    assert sources["port"] == "--port"
    assert sources["batch_size"] == "OPENCLAW_RL_BATCH_SIZE"
    assert sources["seed"] == "openclaw-rl.toml"


def test_the_file_can_be_named(elsewhere: Path) -> None:
    (elsewhere / "mine.toml").write_text("seed = 5")
    assert load({"config": "mine.toml"}, environ={})[0].learning.seed == 5
    assert load(environ={"OPENCLAW_RL_CONFIG": "mine.toml"})[0].learning.seed == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", r"'prot' is no setting \(did you mean port\?\)"),
        ("[server]\nport = 1", r"'server' is no setting"),
        ("[serve]\nprot = 1", r"'serve.prot' is no setting"),
        ("[learning]\nlr_steps = 5", r"lr_steps' is no setting any more: write it in lr_schedule"),
        ("[guard]\nmax_degenerate = 0.3", r"max_degenerate. is no setting any more"),
        ('[cloud]\nloss = "ppo"', r"loss. is no setting any more"),
        ("[guard]\nmax_kl = 0", r"guard_max_kl = '0' \(from openclaw-rl.toml\)"),
        ("port = [1, 2]", "port holds a table or a list"),
        ("port = ", "cannot be read as TOML"),
        ("port = 70000", r"port = '70000' \(from openclaw-rl.toml\)"),
    ],
)
def test_a_wrong_file_is_refused_by_name(elsewhere: Path, text: str, message: str) -> None:
    write(elsewhere, text)
    with pytest.raises(ConfigError, match=message):
        load(environ={})


def test_a_file_that_was_asked_for_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: no such file"):
        load({"config": "absent.toml"}, environ={})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"port": "70000"}, "port = '70000' .from --port."),
        ({"learning-rate": "nan"}, "learning_rate = 'nan'"),
        ({"host": "http://here"}, "not an address"),
        ({"engine-url": "localhost:3"}, "not a URL"),
        ({"device": "tpu"}, "not a device"),
        ({"served-model-name": "policy@3"}, "NAME@N"),
        ({"method": "ppo"}, "no method; choose one of rehearse, binary, opd"),
        ({"method": "magic"}, "method = 'magic'"),
        ({"judge-threshold": "1.5"}, "judge_threshold = '1.5'"),
    ],
)
def test_a_wrong_value_names_setting_value_and_source(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(flags, environ={})


def test_a_wrong_key_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={"OPENCLAW_RL_API_KEY": "two words"})
    assert "two words" not in str(caught.value)
    assert "OPENCLAW_RL_API_KEY" in str(caught.value)


def test_an_unknown_variable_is_a_mistake_not_silence() -> None:
    with pytest.raises(ConfigError, match=r"OPENCLAW_RL_BATCHSIZE is no setting .did you mean OPENCLAW_RL_BATCH_SIZE"):
        load(environ={"OPENCLAW_RL_BATCHSIZE": "4"})


def test_an_empty_variable_counts_as_unset() -> None:
    assert load(environ={"OPENCLAW_RL_PORT": "", "PORT": ""})[0].serve.port == 30000


def test_flags_as_people_write_them() -> None:
    flags = parse_flags(
        ["--port=1", "--batch_size", "4", "--no-lora", "--train", "false", "--capture", "--seed", "1", "--seed", "2"]
    )
    settings, _ = load(flags, environ={})
    assert (settings.serve.port, settings.learning.batch_size, settings.learning.seed) == (1, 4, 2)
    assert (settings.learning.lora, settings.learning.train, settings.serve.capture) == (False, False, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prot", "1"], r"--prot is no setting \(did you mean port\?\)"),
        (["--port"], "--port needs a value"),
        (["--lr", "--port", "1"], "--lr needs a value"),
        (["here"], "'here' is no flag"),
        (["--fp8"], "--fp8 is no setting"),
        (["--context-parallel", "2"], "--context-parallel is no setting"),
    ],
)
def test_flags_that_cannot_be_understood(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_flags(arguments)


def test_the_model_name_flag_means_the_folder_as_elsewhere() -> None:
    settings, _ = load(parse_flags(["--model-name", "some/model", "--served-model-name", "mine"]), environ={})
    assert (settings.engine.model, settings.serve.model_name) == ("some/model", "mine")


def test_children_get_the_same_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flags = parse_flags(["--no-lora", "--learning-rate", "3e-5", "--data", str(tmp_path), "--host", "::1"])
    settings, _ = load(flags, environ={})
    for name, value in to_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert load()[0] == settings


def test_keys_are_never_shown() -> None:
    settings, _ = load({"api-key": "s3cret"}, environ={})
    assert shown(settings, "api_key") == "(set)"
    assert shown(settings, "model_keys") == ""
    assert shown(settings, "lora") == "on"


def test_every_setting_says_what_it_means() -> None:
    for name, (_, _, field) in SETTINGS.items():
        assert field.description, f"{name} has no description"
        assert re.match(r"[A-Z]|rules", field.description), name


def test_places_that_follow_from_others(tmp_path: Path) -> None:
    settings, _ = load({"data": str(tmp_path), "model": "folder"}, environ={})
    assert settings.serve.journal_path == str(tmp_path / "journal.db")
    assert settings.engine.tokenizer_path == "folder"
    assert load({"tokenizer": "t"}, environ={})[0].engine.tokenizer_path == "t"


def test_the_recipe_is_the_learning_group() -> None:
    settings, _ = load({"epochs": "2", "w-opd": "0.5", "w-rl": "0.25"}, environ={})
    recipe: Recipe = settings.learning
    assert (recipe.epochs, recipe.w_opd, recipe.w_rl) == (2, 0.5, 0.25)


def test_a_field_that_is_no_setting_is_for_code_alone() -> None:
    assert Settings(merge_prefixes=False).learning.merge_prefixes is False
    with pytest.raises(ConfigError, match="is no setting any more"):
        load({}, environ={"OPENCLAW_RL_MERGE_PREFIXES": "false"})
    assert len(SETTINGS) <= 133  # few enough to read through


def test_the_destination_of_metrics_is_one_setting() -> None:
    both = Settings(report_to="wandb:team/ours, tensorboard").learning
    assert (both.wandb, both.tensorboard) == ("team/ours", True)
    assert (Settings().learning.wandb, Settings().learning.tensorboard) == ("", False)
    with pytest.raises(ConfigError, match="'mlflow' is neither tensorboard nor wandb:PROJECT"):
        load({"report-to": "mlflow"}, environ={})


def test_options_of_fireworks_follow_its_mode() -> None:
    assert Settings().cloud.fireworks == FireworksMode(False)
    mode = Settings(fireworks_mode="dedicated region=US_1 deployment=accounts/a/deployments/d").cloud.fireworks
    assert mode == FireworksMode(True, deployment="accounts/a/deployments/d", region="US_1")
    with pytest.raises(ConfigError, match="fireworks_mode"):
        load({"fireworks-mode": "serverless region=US_1"}, environ={})


def test_an_unset_setting_is_the_methods_own() -> None:
    published, sources = load({"method": "combine", "batch-size": "4"}, environ={})
    assert (published.learning.method, published.learning.learning_rate, published.learning.epochs) == (
        "combined",
        1e-5,
        1,
    )
    assert (published.learning.batch_size, sources["batch_size"]) == (4, "--batch-size")
    assert sources["learning_rate"] == "default of combined"
    assert Settings(**{**to_environment_values(published)}) == published
    assert load({}, environ={})[0].learning.learning_rate == 2e-3


def to_environment_values(settings: Settings) -> dict[str, str]:
    return {name.removeprefix("OPENCLAW_RL_").lower(): value for name, value in to_environment(settings).items()}


def test_keys_of_other_models_go_by_their_role(tmp_path: Path) -> None:
    write(tmp_path, '[model_keys]\njudge = "sk-1=="\nside = "sk-2"')
    settings, _ = load(environ={})
    assert [settings.cloud.key_of(role) for role in ("judge", "hint", "side")] == ["sk-1==", "", "sk-2"]
    assert shown(settings, "model_keys") == "(set)"
    with pytest.raises(ConfigError, match=r"model_keys = \(hidden\) .*write judge=KEY, side=KEY") as caught:
        load({"model-keys": "jugde=sk-3"}, environ={})
    assert "sk-3" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("judge_api_base", "judge = NAME@URL"), ("side_api_key", "side=KEY"), ("journal", "DATA/journal.db")],
)
def test_a_setting_that_was_removed_says_what_takes_its_place(elsewhere: Path, name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=f"is no setting any more: .*{instead}"):
        load(environ={f"OPENCLAW_RL_{name.upper()}": "x"})
    with pytest.raises(ConfigError, match=f"is no setting any more: .*{instead}"):
        parse_flags([f"--{name.replace('_', '-')}", "x"])
    write(elsewhere, f'{name} = "x"')
    with pytest.raises(ConfigError, match=f"is no setting any more: .*{instead}"):
        load(environ={})


def test_tables_of_groups_hold_settings_by_short_and_by_full_names(elsewhere: Path) -> None:
    judge = '[judge]\nmodel = "policy"\njudge_timeout = 5'
    write(elsewhere, f"[learning]\nbatch_size = 3\n{judge}\n[guard]\nenabled = false")
    settings, sources = load(environ={})
    assert (settings.learning.batch_size, settings.judge.model, settings.judge.timeout) == (3, "policy", 5.0)
    assert not settings.guard.enabled and sources["guard"] == sources["judge"] == "openclaw-rl.toml"
