"""Lessons of a version, wishes that are dropped, and a session taken home, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

from openclaw_rl.shared.api_keys import KeyFile
from openclaw_rl.shared.journal.views import Lesson
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.redaction.redactor import Redactor
from tests.proxy.scripted_engine import scripted_service
from tests.shared.journal_records import judged, make_turn, sample_of, user_reply


async def test_lessons_wishes_and_exports_go_to_their_owners(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Hi.", admin_key="boss") as (client, service, _):
        journal, samples = service.journal, []
        await journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
        for session in ("a@@alice", "b"):
            turn = make_turn(session, "Write to me@example.org please.")
            await journal.record_turn(turn)
            await journal.settle(user_reply(turn))
            await journal.add_judgement(judged(turn))
            samples.append(sample_of(turn))
            await journal.add_sample(samples[-1])
        ids = [sample.sample_id for sample in samples]
        metrics = {"mix/rehearsals": 3.0, "mix/anchors": 2.0}
        made = PolicyVersion(number=1, parent=0, state="live", checkpoint="", sample_ids=ids, metrics=metrics)
        await journal.commit_version(made, [Lesson(ids[0], 1.0, None, {"distill": 1.0})])
        boss = {"authorization": "Bearer boss"}
        alice = {"authorization": f"Bearer {KeyFile(service.settings.serve.data).create('alice', ['read'])}"}

        shown = (await client.get("/rl/versions/1", headers=boss)).json()
        assert (shown["rehearsals"], shown["anchors"], shown["available"]) == (3, 2, False)
        assert [one["words"] for one in shown["lessons"]] == ["no, shorter please"] * 2
        assert [one["terms"] for one in shown["lessons"]] == [{"distill": 1.0}, None]
        hers = (await client.get("/rl/versions/1", headers=alice)).json()["lessons"]
        assert [one["session_id"] for one in hers] == ["a@@alice"] and "owner" not in hers[0]
        assert (await client.get("/rl/versions/7", headers=boss)).status_code == 404
        assert (await client.get("/rl/versions/x", headers=boss)).status_code == 400

        (wish,) = (await client.get("/rl/wishes", headers=boss)).json()["items"]
        assert (wish["text"], wish["count"], wish["state"]) == ("be shorter", 2, "standing")
        path = f"/rl/wishes/{wish['id']}"
        assert (await client.delete(path, headers=alice)).status_code == 403
        assert (await client.delete(path, headers=boss)).json() == {"id": wish["id"], "state": "dropped"}
        assert (await client.delete("/rl/wishes/nothing", headers=boss)).status_code == 404
        assert (await client.get("/rl/wishes", headers=alice)).json()["items"][0]["state"] == "dropped"

        taken = await client.get("/rl/sessions/a/export", headers=alice)
        if Redactor.if_installed() is None:
            assert (taken.status_code, taken.json()["error"]["code"]) == (409, "not_redacted")
        else:
            (line,) = map(json.loads, taken.text.splitlines())
            assert line["new_messages"][-1]["text"] == "Write to [EMAIL] please."
        assert (await client.get("/rl/sessions/b/export", headers=alice)).status_code == 404
