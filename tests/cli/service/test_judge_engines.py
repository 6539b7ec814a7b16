"""Engines of the judge's own: the choice of those to start, and one that really runs next to a service."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from openclaw_rl.cli.checks.data_flows import data_flows
from openclaw_rl.cli.service.plan import ServicePlan
from openclaw_rl.cli.service.supervisor import judge_engines
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.gpus import imagined
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.placement import Placement
from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.trainer_local.placement.place import place
from tests.cli.commands.test_serve import serving, until
from tests.processes import HTTP, Engine

POLICY = str(EMBEDDED_POLICY)


def started(tmp_path: Path, placed: Placement | None = None, **changes: Any) -> tuple[Settings, dict[str, list[str]]]:
    """The learner's settings and the command lines of the judges' engines, as `serve` would start them."""
    settings = Settings(data=tmp_path / "data", **changes)
    judges = JudgeModels.from_settings(settings)
    if placed is None:
        plan = ServicePlan.from_settings(settings, ["learner"]).downloaded()
    else:
        plan = ServicePlan(
            settings=settings, policy="", roles=("learner",), judges=judges, placement=placed, data_flows=()
        )
    engines = judge_engines(plan, lambda: claim_port("127.0.0.1", 0, setting="engine_port"), "s3cret")
    return plan.settings.replace(**engines.settings), {role: line() for role, line in engines.commands.items()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"judge": "policy"},
        {"judge": "openai/gpt", "hint_model": "policy"},
        {"judge": "engine:http://elsewhere:1"},
        {"judge": f"engine:{POLICY}@http://elsewhere:1"},
        {"judge": f"engine:{POLICY}", "custom_reward": "mine.py"},
    ],
    ids=str,
)
def test_none_is_started_where_none_is_wanted(tmp_path: Path, changes: dict[str, str]) -> None:
    _, lines = started(tmp_path, **changes)
    assert lines == {}


def test_the_judges_engine_gets_its_model_and_a_port_and_nothing_of_the_policys(tmp_path: Path) -> None:
    changes = {"engine_port": 1234, "engine_host": "0.0.0.0", "tokenizer": str(tmp_path), "context_length": 99}
    after, lines = started(tmp_path, judge=f"engine:{POLICY}", **changes)
    assert set(lines) == {"judge"}
    line = lines["judge"]
    flags = {line[index]: line[index + 1] for index in range(4, len(line) - 1, 2)}
    assert (flags["--model"], flags["--tokenizer"], flags["--host"]) == (POLICY, POLICY, "127.0.0.1")
    assert (flags["--context-length"], "--live" in line) == ("0", False)
    assert (
        after.judge.model == f"engine:{POLICY}@http://bearer:s3cret@127.0.0.1:{flags['--port']}"
        and flags["--port"] != "1234"
    )
    assert (after.engine.port, after.engine.host, after.judge.hint_model) == (1234, "0.0.0.0", "")


def test_judge_and_hint_model_share_an_engine_or_have_one_each(tmp_path: Path) -> None:
    shared, lines = started(tmp_path, judge=f"engine:{POLICY}", hint_model=f"engine:{POLICY}")
    assert set(lines) == {"judge"} and shared.judge.hint_model == shared.judge.model
    apart, lines = started(tmp_path, judge=f"engine:{POLICY}", hint_model=f"engine:{tmp_path}")
    assert set(lines) == {"judge", "hint"} and apart.judge.hint_model.startswith(
        f"engine:{tmp_path}@http://bearer:s3cret@127.0.0.1:"
    )
    hints, lines = started(tmp_path, hint_model=POLICY)  # a folder alone
    assert set(lines) == {"hint"} and hints.judge.hint_model.startswith(
        f"engine:{POLICY}@http://bearer:s3cret@127.0.0.1:"
    )


def test_a_teacher_of_its_own_has_an_engine_or_shares_the_judges(tmp_path: Path) -> None:
    own, lines = started(tmp_path, method="topk", teacher=f"engine:{POLICY}")
    assert set(lines) == {"teacher"} and own.learning.teacher.startswith(
        f"engine:{POLICY}@http://bearer:s3cret@127.0.0.1:"
    )
    assert given(lines["teacher"], "--model") == POLICY
    shared, lines = started(tmp_path, method="topk", teacher=f"engine:{POLICY}", judge=f"engine:{POLICY}")
    assert set(lines) == {"judge"} and shared.learning.teacher == shared.judge.model
    _, lines = started(tmp_path, method="topk", teacher="engine:http://elsewhere:1")
    assert lines == {}
    _, lines = started(tmp_path, method="topk", teacher=f"engine:{POLICY}", train=False)
    assert lines == {}
    with pytest.raises(ConfigError, match="teacher = '/no/such/model'"):
        started(tmp_path, method="topk", teacher="engine:/no/such/model")


def test_data_that_goes_to_a_teacher_elsewhere_is_listed() -> None:
    there = Settings(method="topk", teacher=f"engine:{POLICY}@http://elsewhere:1")
    (flow,) = data_flows(there, JudgeModels.from_settings(there).asked)
    assert "to the teacher's engine at http://elsewhere:1; nothing is redacted first" in flow
    here = Settings(method="topk", teacher=f"engine:{POLICY}@http://127.0.0.1:1")
    assert not list(data_flows(here, JudgeModels.from_settings(here).asked))


def test_a_folder_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hint_model = '/no/such/model'"):
        started(tmp_path, hint_model="engine:/no/such/model")


def given(line: list[str], flag: str) -> str:
    return line[line.index(flag) + 1]


def test_judges_are_started_where_the_placement_has_them_and_not_as_the_policy_is(tmp_path: Path) -> None:
    """With GPUs that are imagined: nothing is started."""
    quantized = tmp_path / "judge"
    shutil.copytree(POLICY, quantized)
    config = json.loads((quantized / "config.json").read_text())
    (quantized / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "awq"}}))
    changes = {"backend": "megatron", "sglang_python": sys.executable, "judge": f"engine:{quantized}", "lora": False}
    changes |= {"model": "Qwen/Qwen3-0.6B", "hint_model": f"engine:{POLICY}", "rollout_tensor_parallel": 1}
    changes |= {"recompute": True, "sglang_args": "--mem-fraction-static 0.7", "tensor_parallel": 2}
    wide = place(Settings(**changes), imagined("8x80"), {})
    _, lines = started(tmp_path, wide, **changes)
    assert set(lines) == {"judge", "hint"} and len(wide.judges[0].gpus) == 2
    for server, line in zip(wide.judges, (lines["judge"], lines["hint"]), strict=True):
        fleet = json.loads(given(line, "--plan"))
        assert fleet["gpus"] == [[gpu.handle for gpu in server.gpus]] and not fleet["router"]
        assert fleet["memory"] == [[server.memory_fraction, server.static_bytes]]
        arguments = fleet["arguments"]
        assert given(arguments, "--model-path") == server.model and fleet["host"] == "127.0.0.1"
        assert not {"--mem-fraction-static", "--enable-lora", "--quantization", "--enable-memory-saver"} & {*arguments}
    alone = changes | {"hint_model": "", "judge_gpus": "6,7"}
    placed = place(Settings(**alone), imagined("8x80"), {})
    assert [server.memory_fraction for server in placed.judges] == [0.0]
    fleet = json.loads(given(started(tmp_path, placed, **alone)[1]["judge"], "--plan"))
    assert fleet["memory"][0][0] == 0.0, "GPUs of its own are all SGLang's"
    nowhere = changes | {"hint_model": "", "judge": f"engine:{POLICY}", "judge_gpus": "0"}
    _, lines = started(tmp_path, place(Settings(**nowhere), imagined("8x80"), {}), **nowhere)
    assert "openclaw_rl.trainer_local.embedded.server" in lines["judge"] and given(lines["judge"], "--device") == "cpu"


class Talk:
    """A person at the service."""

    def __init__(self, data: Path) -> None:
        card = read_json(data / "run" / "proxy.json")
        assert card is not None
        self.url, self.key = card["url"], card["key"]

    def exchange(self, session: str) -> str:
        """One answer and a reaction to it; the answer's turn."""
        messages = [{"role": "user", "content": f"How much is 7 and 5, {session}?"}]
        first = self._say(session, messages)
        said = first["choices"][0]["message"]
        self._say(
            session,
            [*messages, {"role": "assistant", "content": said["content"]}, {"role": "user", "content": "no bold"}],
        )
        return f"turn_{first['id'].removeprefix('chatcmpl-')}"

    def _say(self, session: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.key}", "x-session-id": session}
        body = {"model": "policy", "messages": messages, "max_tokens": 4}
        answer = HTTP.post(f"{self.url}/v1/chat/completions", headers=headers, json=body, timeout=60.0)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_service_starts_its_judges_engine_and_starts_it_again(engine_server: Engine, tmp_path: Path) -> None:
    data = tmp_path / "data"
    flags = ("--engine-url", engine_server.url, "--model", str(engine_server.policy), "--train", "off")
    judging = ("--judge", f"engine:{engine_server.policy}", "--judge-max-tokens", "12")
    with (
        serving(data, *flags, *judging, "--votes", "2") as served,
        contextlib.closing(Journal(data / "journal.db")) as journal,
    ):
        talk = Talk(data)

        def engine() -> psutil.Process | None:
            return served.child("openclaw_rl.trainer_local.embedded.server")

        def judged(turn: str) -> dict[str, Any] | None:
            explained = journal.explain(turn)
            return explained["judgements"][0] if explained and explained["judgements"] else None

        turn = talk.exchange("one")
        judgement = until(lambda: judged(turn), 90.0, what="the judge")
        assert judgement["judge"] == "engine:tiny" and judgement["score"] is None
        assert ["boxed" in vote["failure"] or "empty" in vote["failure"] for vote in judgement["votes"]] == [True] * 2
        card = read_json(data / "run" / "judge.json")
        assert card is not None and HTTP.get(f"{card['url']}/health", timeout=5.0).status_code == 200
        first = engine()
        assert first is not None
        first.kill()
        turn = talk.exchange("two")  # chat continues, and the turn waits for the judge
        judgement = until(lambda: judged(turn), 90.0, what="the judge to come back")
        assert all("boxed" in vote["failure"] or "empty" in vote["failure"] for vote in judgement["votes"])
        second = engine()
        assert second is not None and second.pid != first.pid
        assert "judge ended (SIGKILL); starting it again" in served.text()
    assert not second.is_running()
    assert not (data / "run" / "judge.json").exists()
