"""Stands in for Fireworks' service, which nothing here can reach: it answers each request with the SDK's own types, and
computes nothing. What it is good for is to see which requests are sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fireworks import types as rest
from fireworks.training.sdk import types
from fireworks.types.model_get_download_endpoint_response import ModelGetDownloadEndpointResponse

from openclaw_rl.shared.settings.settings import Settings
from tests.trainer_cloud.front import Answer, Front, Lost, Sent, Silent

ACCOUNT = "acme"
SESSION = "ts-0123abcd"
RUN = "run-" + "0" * 32
MODEL = "accounts/fireworks/models/qwen3-8b"
SERVERLESS = "/training/v1/serverless"


def settings(front: Front, data: Path, tokenizer: Path, **changes: Any) -> Settings:
    own = {"backend": "fireworks", "model": MODEL, "tokenizer": str(tokenizer), "data": data}
    key = {"fireworks_api_key": "fw_secret", "fireworks_base_url": front.url + SERVERLESS, "lora_rank": 8}
    return Settings(**(own | key | {"request_timeout": 20.0} | changes))


def plain(model: Any) -> Any:
    """A type of the SDK as it is on the wire."""
    return json.loads(model.model_dump_json(by_alias=True, exclude_none=True))


class Fake:
    """Answers by path. `gone` are paths of models that are not served any more, `failures` answers that come before
    all others, by the end of a path; `failed` results of training requests, by their name.
    """

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.completion: Mapping[str, Any] = {}
        self.gone: set[str] = set()
        self.failures: dict[tuple[str, str], Answer | Lost | Silent] = {}
        self.failed: dict[str, Any] = {}
        self.accounts = [ACCOUNT]
        self.deployment_state = ""
        self.deployment_job = ""
        self.snapshot = ""
        self.trainer_state = ""
        self.files: dict[str, str] = {}
        self.sessions = 0

    def __call__(self, sent: Sent) -> Answer | Lost | Silent:
        for (method, end), answer in self.failures.items():
            if sent.method == method and sent.path.endswith(end):
                return answer
        if "/api/v1/" in sent.path:
            return self._training(sent.path.rpartition("/api/v1/")[2], sent)
        if sent.path.endswith("/inference/v1/completions"):
            return self._completion(sent.body)
        if sent.path == "/hot_load/v1/models/hot_load":
            return self._hot_load(sent)
        if sent.path == "/v1/accounts":
            accounts = [rest.Account(email="a@b.c", name=f"accounts/{name}") for name in self.accounts]
            return Answer({"accounts": [plain(one) for one in accounts]})
        return self._control(sent)

    def _training(self, name: str, sent: Sent) -> Answer:
        if name == "create_session":
            self.sessions += 1
            shared = sent.path.startswith(SERVERLESS)
            known = (SESSION if shared else "session") + (str(self.sessions) if self.sessions > 1 else "")
            return Answer(plain(types.CreateSessionResponse(session_id=known)))
        if name == "session_heartbeat":
            return Answer(plain(types.SessionHeartbeatResponse()))
        if name == "retrieve_future":
            return Answer(self.results[sent.body["request_id"]])
        if name == "healthz":
            return Answer({"status": "ok"})
        results = {
            "create_model": {"model_id": f"{RUN}:train:0", "type": "create_model", "comms": "v1"},
            "save_weights_for_sampler": {
                "path": f"{ACCOUNT}/{RUN}/{sent.body.get('path')}",
                "type": "save_weights_for_sampler",
            },
            "save_weights": {"path": f"{ACCOUNT}/{RUN}/{sent.body.get('path')}", "type": "save_weights"},
            "load_weights": {"type": "load_weights"},
            "unload_model": {"model_id": f"{RUN}:train:0", "type": "unload_model"},
            "optim_step": {"metrics": {"grad_norm": 2.0}},
            "forward": self._forward(sent.body.get("forward_input")),
            "forward_backward": self._forward(sent.body.get("forward_backward_input")),
        }
        request = f"request-{len(self.results)}"
        self.results[request] = self.failed.get(name, results[name])
        return Answer(plain(types.UntypedAPIFuture(request_id=request)))

    def _forward(self, given: Any) -> Any:
        outputs = []
        for datum in (given or {}).get("data", ()):
            targets = datum["loss_fn_inputs"]["target_tokens"]
            values = [-0.5 - index for index in range(len(targets["data"]))]
            outputs.append({"logprobs": {"data": values, "dtype": "float32", "shape": targets["shape"]}})
        return {"loss_fn_output_type": "ArrayRecord", "loss_fn_outputs": outputs, "metrics": {}}

    def _completion(self, body: Mapping[str, Any]) -> Answer:
        if body["model"] in self.gone:
            return Answer({"error": {"message": "Model not found, inaccessible, and/or not deployed"}}, 404)
        echoed = list(body["prompt"])[-body["echo_last"] :] if body.get("echo_last") else []
        tokens = [*echoed, *([7] if body["max_tokens"] == 1 else [7, 8])]
        content = [self._token(token, index, body.get("top_logprobs") or 0) for index, token in enumerate(tokens)]
        choice = {
            "index": 0,
            "text": "words",
            "finish_reason": "stop",
            "raw_output": {"completion_token_ids": tokens},
            "logprobs": {"content": content},
            **self.completion,
        }
        event = {"id": "cmpl-1", "choices": [choice], "usage": {"completion_tokens": len(tokens)}}
        return Answer(
            text=f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n", headers={"content-type": "text/event-stream"}
        )

    @staticmethod
    def _token(token: int, index: int, top_logprobs: int) -> dict[str, Any]:
        best: Sequence[Mapping[str, Any]] = [
            {"token_id": token + 1 + one, "logprob": -0.1 * one} for one in range(top_logprobs)
        ]
        return {
            "token_id": token,
            "logprob": -1.0 - index,
            "sampling_logprob": -9.0,
            "top_logprobs": list(reversed(best)),
        }

    def _hot_load(self, sent: Sent) -> Answer:
        if sent.method == "POST":
            self.snapshot = sent.body["identity"]
            return Answer({})
        replica = {"current_snapshot_identity": self.snapshot or None, "readiness": True, "loading_state": {}}
        return Answer({"replicas": [replica]})

    def _control(self, sent: Sent) -> Answer:
        kind, _, last = sent.path.rpartition("/")
        if sent.method == "DELETE":
            return Answer({})
        if kind.endswith("/deployments") or sent.path.endswith("/deployments"):
            if sent.method == "GET" and not self.deployment_state:
                return Answer({"message": "not found"}, 404)
            self.deployment_state = self.deployment_state or "READY"
            self.deployment_job = (sent.body or {}).get("hotLoadTrainerJob") or self.deployment_job
            deployment = last if sent.method in ("GET", "PATCH") else sent.query["deploymentId"]
            found = plain(rest.Deployment(baseModel=MODEL, name=f"accounts/{ACCOUNT}/deployments/{deployment}"))
            found |= {"state": self.deployment_state, "hotLoadTransitionType": "SYNC"}
            return Answer(found | ({"hotLoadTrainerJob": self.deployment_job} if self.deployment_job else {}))
        if "/rlorTrainerJobs" in sent.path and "/checkpoints" not in sent.path:
            if sent.method == "GET" and not self.trainer_state:
                return Answer({"message": "not found"}, 404)
            if sent.method == "POST":
                self.trainer_state = f"JOB_STATE_{'CANCELLED' if last.endswith(':cancel') else 'RUNNING'}"
            job = sent.query.get("rlorTrainerJobId") or last.partition(":")[0]
            name = f"accounts/{ACCOUNT}/rlorTrainerJobs/{job}"
            return Answer({"name": name, "state": self.trainer_state})
        if sent.path.endswith(":promote"):
            return Answer({"model": plain(rest.Model(name="m", state="READY"))})
        if sent.path.endswith("/checkpoints"):
            session = sent.path.removeprefix("/v1/").removesuffix("/checkpoints")
            rows = [{"name": f"{session}/checkpoints/{name}", "promotable": True} for name in ("other", *self.files)]
            return Answer({"trainingSessionCheckpoints": rows})
        if sent.path.endswith(":getDownloadEndpoint"):
            return Answer(plain(ModelGetDownloadEndpointResponse(filenameToSignedUrls=self.files)))
        if sent.path.startswith("/files/"):
            return Answer(text=f"content of {last}")
        if "/trainingShapes/" in sent.path:
            version = {
                "name": f"{sent.path[4:]}/1",
                "snapshot": {"deploymentShapeVersion": "accounts/f/deploymentShapes/d"},
            }
            return Answer({"trainingShapeVersions": [version]})
        return Answer({"message": f"nothing is known of {sent.path}?{urlencode(dict(sent.query))}"}, 404)
