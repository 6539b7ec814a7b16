"""The steps that connect the programs whose configuration `openclaw-rl connect` does not write: it is no JSON file."""

from __future__ import annotations

RECIPES = {
    "codex": """\
Codex: add to ~/.codex/config.toml (the first two lines at its top), and set OPENCLAW_RL_API_KEY={key}

  model = "{model}"
  model_provider = "openclaw_rl"
  model_context_window = {context}

  [model_providers.openclaw_rl]
  name = "openclaw-rl"
  base_url = "{url}/v1"
  env_key = "OPENCLAW_RL_API_KEY"
  wire_api = "responses"
""",
    "aider": """\
aider: set these variables, or put the same into ~/.env

  OPENAI_API_BASE={url}/v1
  OPENAI_API_KEY={key}

and start it with
  aider --model openai/{model}
""",
    "open-webui": """\
Open WebUI: start it with these variables, or add the connection under Admin Panel > Settings > Connections

  OPENAI_API_BASE_URL={url}/v1
  OPENAI_API_KEY={key}
  ENABLE_FORWARD_USER_INFO_HEADERS=true

The last one sends the id of each chat, by which its conversation is recognized.
""",
    "continue": """\
Continue: add to the list of models in ~/.continue/config.yaml

  models:
    - name: RL policy
      provider: openai
      model: {model}
      apiBase: {url}/v1
      apiKey: {key}
      roles: [chat, edit, apply]
      defaultCompletionOptions:
        contextLength: {context}
""",
}
