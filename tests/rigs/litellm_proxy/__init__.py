"""Starts the real LiteLLM Proxy with our plug-in, as integrations/litellm/README.md says, in front of a service."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openclaw_rl.shared.process import claim_port
from tests.processes import Proxy
from tests.rigs.environments import clean_environment, environment
from tests.rigs.programs import running

MASTER_KEY = "sk-litellm-test"
START_SECONDS = 180.0  # importing it takes one core half a minute, on a busy machine several times that


@contextmanager
def run_litellm_proxy(
    service: Proxy, folder: Path, *, models: Sequence[Any] = (), **litellm_settings: Any
) -> Iterator[str]:
    """Its URL, until the block ends. `policy` is the deployment of the running service; the log is in `folder`.

    `models` and `litellm_settings` are added to those of its configuration. Skips the test where its
    environment is not there.
    """
    program = environment("litellm_proxy") / "bin" / "litellm"
    port = claim_port("127.0.0.1", 0, setting="port")
    plugin = "openclaw_rl_litellm"
    configuration = {
        "model_list": [
            {
                "model_name": "policy",
                "litellm_params": {
                    "model": "policy/live",
                    "api_base": f"{service.url}/v1",
                    "api_key": service.key,
                },
            },
            *models,
        ],
        "litellm_settings": {
            "custom_provider_map": [{"provider": "policy", "custom_handler": f"{plugin}.policy_llm"}],
            "callbacks": [f"{plugin}.policy_callback"],
            "num_retries": 0,
            **litellm_settings,
        },
        "general_settings": {"master_key": MASTER_KEY},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(configuration))  # JSON is YAML
    variables = clean_environment(folder, LITELLM_LOCAL_MODEL_COST_MAP="True", NO_DOCS="True")
    url = f"http://127.0.0.1:{port}"
    command = [str(program), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    ready = f"{url}/health/liveliness"
    with running(command, folder, variables, folder / "litellm.log", ready=ready, seconds=START_SECONDS):
        yield url
