"""Checks of a provider before anything starts. The providers' own servers cannot be asked from a test, so an HTTP
server stands in for them: it gives scripted answers, in the shapes of the libraries' types.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.trainer_cloud import preflight as checking
from openclaw_rl.trainer_cloud.preflight import base_url, check, diagnose
from openclaw_rl.trainer_cloud.provider import CloudError
from tests.trainer_cloud.stand_in import StandIn

MODELS = ["Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.2-1B", *(f"other/model-{n}" for n in range(12))]


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    server.close()


def tinker(url: str, **changes: Any) -> Settings:
    values = {"model": "Qwen/Qwen3-8B", "tinker_api_key": "tml-right"}
    return Settings(backend="tinker", tinker_base_url=url, **(values | changes))


def trouble(settings: Settings) -> CloudError:
    error = diagnose(settings)
    assert error is not None
    return error


def test_the_offer_of_a_stand_in(stand_in: StandIn) -> None:
    stand_in.has({"model_name": "Qwen/Qwen3-8B", "max_context_length": 32768}, "meta-llama/Llama-3.2-1B")
    offer = check(tinker(stand_in.url))
    assert (list(offer.models), offer.context_length) == (["Qwen/Qwen3-8B", "meta-llama/Llama-3.2-1B"], 32768)
    ((path, headers),) = stand_in.seen
    assert path == "/api/v1/get_server_capabilities"
    assert headers["x-api-key"] == "tml-right"


def test_a_server_that_lists_nothing_is_taken_at_its_word(stand_in: StandIn) -> None:
    stand_in.has()
    assert check(tinker(stand_in.url)).models == []


def test_a_folder_that_a_server_offers_may_be_written_otherwise(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.has(str(EMBEDDED_POLICY))
    monkeypatch.chdir(EMBEDDED_POLICY.parent)
    assert diagnose(tinker(stand_in.url, model=EMBEDDED_POLICY.name)) is None


def test_without_a_key_nothing_is_sent(stand_in: StandIn) -> None:
    error = trouble(tinker(stand_in.url, tinker_api_key=""))
    assert error.trouble == "key"
    assert "set TINKER_API_KEY (tinker_api_key)" in str(error)
    error = trouble(Settings(backend="fireworks", fireworks_base_url=stand_in.url))
    assert "set FIREWORKS_API_KEY (fireworks_api_key)" in str(error)
    assert stand_in.seen == []


def test_the_key_of_another_provider_is_known_by_its_form(stand_in: StandIn) -> None:
    error = trouble(tinker(stand_in.url, tinker_api_key="fw_s3cret"))
    assert (error.trouble, "begin with tml-" in str(error), "s3cret" in str(error)) == ("key", True, False)
    error = trouble(Settings(backend="fireworks", fireworks_base_url=stand_in.url, fireworks_api_key="tml-s3cret"))
    assert (error.trouble, "none of Fireworks" in str(error), "s3cret" in str(error)) == ("key", True, False)
    assert stand_in.seen == []


@pytest.mark.parametrize(
    ("status", "content", "kind", "message"),
    [
        (401, {"detail": "bad key tml-right"}, "key", "refuses the key in TINKER_API_KEY (tinker_api_key)"),
        (403, {"error": {"message": "no access"}}, "key", "TINKER_API_KEY (tinker_api_key) do this: no access"),
        (402, {"detail": "Payment required"}, "billing", "cannot pay: Payment required"),
        (412, {"error": {"message": "Account is suspended"}}, "billing", "cannot pay: Account is suspended"),
        (429, {"message": "slow down"}, "limit", "asked too often"),
        (500, "<html>oops</html>", "away", "fails with status 500: Internal Server Error"),
        (503, {"detail": "maintenance"}, "away", "fails with status 503: maintenance"),
        (404, {"detail": "Not Found"}, "refused", "is tinker_base_url right"),
        (400, {"detail": "what?"}, "refused", "status 400: what?"),
        (200, "<html>log in</html>", "refused", "not as Tinker does"),
        (200, {"models": []}, "refused", "not as Tinker does"),
        (200, ["a"], "refused", "not as Tinker does"),
    ],
)
def test_an_answer_of_a_stand_in_becomes_words(
    stand_in: StandIn, status: int, content: Any, kind: str, message: str
) -> None:
    stand_in.fails(status, content)
    error = trouble(tinker(stand_in.url))
    assert error.trouble == kind
    assert message in str(error)
    assert "tml-right" not in str(error)
    assert len(stand_in.seen) == 1, "it is asked once"


def test_a_stand_in_says_how_long_to_wait(stand_in: StandIn) -> None:
    stand_in.fails(429, {"detail": "slow down"}, **{"retry-after": "7"})
    assert trouble(tinker(stand_in.url)).retry_after == 7.0


def test_a_key_does_not_follow_a_stand_in_that_sends_on(stand_in: StandIn) -> None:
    stand_in.fails(302, "", location="http://portal.example/login")
    error = trouble(tinker(stand_in.url))
    assert error.trouble == "refused"
    assert "sends on to http://portal.example/login" in str(error) and "set tinker_base_url" in str(error)


def test_a_model_that_a_stand_in_has_not_is_answered_with_those_it_has(stand_in: StandIn) -> None:
    stand_in.has(*MODELS)
    error = trouble(tinker(stand_in.url, model="qwen/qwen3-8b"))
    assert error.trouble == "model"
    listed = str(error).rpartition(": ")[2]
    assert listed.startswith("Qwen/Qwen3-8B, ")
    assert listed.endswith(" and 5 more") and listed.count(", ") == 9


def test_the_shipped_policy_is_no_providers(stand_in: StandIn) -> None:
    stand_in.has(*MODELS)
    error = trouble(tinker(stand_in.url, model=str(EMBEDDED_POLICY)))
    assert error.trouble == "model"
    assert "the shipped policy is on this machine alone" in str(error)
    assert "OPENCLAW_RL_MODEL" in str(error) and "Qwen/Qwen3-8B" in str(error)


def test_a_model_that_a_stand_in_only_samples_is_not_trained(stand_in: StandIn) -> None:
    stand_in.has({"model_name": "Qwen/Qwen3-8B", "trainable": False, "sampleable": True}, "other/model")
    error = trouble(tinker(stand_in.url))
    assert error.trouble == "model"
    assert "is not there to be trained at Tinker" in str(error) and str(error).endswith(": other/model")
    assert diagnose(tinker(stand_in.url, train=False)) is None


def test_fireworks_training_api_at_another_address_is_tinkers(stand_in: StandIn) -> None:
    stand_in.has("accounts/fireworks/models/qwen3-8b")
    settings = Settings(
        backend="fireworks",
        model="accounts/fireworks/models/qwen3-8b",
        fireworks_api_key="fw_key",
        fireworks_base_url=stand_in.url,
    )
    assert diagnose(settings) is None
    assert stand_in.seen[0][1]["x-api-key"] == "fw_key"
    stand_in.fails(401)
    assert "FIREWORKS_API_KEY (fireworks_api_key)" in str(trouble(settings))


class TestFireworksOwnApi:
    """A stand-in that is taken for Fireworks' own host."""

    @pytest.fixture(autouse=True)
    def own(self, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn) -> None:
        monkeypatch.setattr(checking, "is_fireworks_own", lambda url: True)
        stand_in.answers["/v1/accounts"] = (200, {"accounts": [{"name": "accounts/mine"}]}, {})
        row = {"name": "accounts/fireworks/models/qwen3-8b", "contextLength": 40960, "trainingContextLength": 32768}
        stand_in.answers["/v1/accounts/fireworks/models/qwen3-8b"] = (200, row, {})
        rows = [{"name": "accounts/fireworks/models/flux"}, row | {"tunable": True}]
        stand_in.answers["/v1/accounts/fireworks/models"] = (200, {"models": rows}, {})

    def settings(self, stand_in: StandIn, **changes: Any) -> Settings:
        values = {"model": "accounts/fireworks/models/qwen3-8b", "fireworks_api_key": "fw_key"}
        url = f"{stand_in.url}/training/v1/serverless"
        return Settings(backend="fireworks", fireworks_base_url=url, **(values | changes))

    def test_account_and_model_are_asked_for_with_a_bearer_token(self, stand_in: StandIn) -> None:
        assert check(self.settings(stand_in)).context_length == 32768
        assert [path for path, _ in stand_in.seen] == ["/v1/accounts", "/v1/accounts/fireworks/models/qwen3-8b"]
        assert all(headers["authorization"] == "Bearer fw_key" for _, headers in stand_in.seen)

    def test_a_suspended_account_is_billing(self, stand_in: StandIn) -> None:
        rows = [{"name": "accounts/mine", "suspendState": "MONTHLY_SPEND_LIMIT_EXCEEDED"}]
        stand_in.answers["/v1/accounts"] = (200, {"accounts": rows}, {})
        error = trouble(self.settings(stand_in))
        assert (error.trouble, "monthly spend limit exceeded" in str(error)) == ("billing", True)

    @pytest.mark.parametrize("model", ["accounts/fireworks/models/qwen3-9b", "Qwen/Qwen3-8B"])
    def test_a_model_that_is_not_there(self, stand_in: StandIn, model: str) -> None:
        error = trouble(self.settings(stand_in, model=model))
        assert error.trouble == "model"
        assert str(error).endswith("to one that is: accounts/fireworks/models/qwen3-8b")

    def test_a_refused_key(self, stand_in: StandIn) -> None:
        stand_in.answers["/v1/accounts"] = (401, {"error": {"message": "The API key is invalid"}}, {})
        assert "FIREWORKS_API_KEY (fireworks_api_key): The API key is invalid" in str(trouble(self.settings(stand_in)))


def test_fireworks_own_host_is_known_by_its_name() -> None:
    assert checking.is_fireworks_own(base_url(Settings(backend="fireworks")))
    assert not checking.is_fireworks_own("http://fireworks.ai.example")


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        error = trouble(tinker(f"http://127.0.0.1:{taken.getsockname()[1]}"))
    assert error.trouble == "away" and error.passes
    assert "(tinker_base_url) cannot be reached" in str(error) and "refused" in str(error)


def test_a_server_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        error = trouble(tinker(f"http://127.0.0.1:{silent.getsockname()[1]}"))
    assert error.trouble == "away" and "did not answer within" in str(error)


def test_a_look_up_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that is silent cannot be had here: a look-up that waits stands in for it."""
    monkeypatch.setattr(checking, "_ALL_SECONDS", 0.2)
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: released.wait(30))
    started = time.monotonic()
    error = trouble(tinker("http://tinker.example"))
    released.set()
    assert error.trouble == "away" and time.monotonic() - started < 5


def test_an_unencrypted_server_where_tls_is_expected(stand_in: StandIn) -> None:
    error = trouble(tinker(stand_in.url.replace("http:", "https:")))
    assert error.trouble == "away" and "https where http is spoken" in str(error)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_self_signed_certificate(stand_in: StandIn, tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    stand_in.secure(context)
    error = trouble(tinker(stand_in.url.replace("http:", "https:")))
    assert error.trouble == "away" and "certificate of 127.0.0.1 is not trusted" in str(error)


def test_a_proxy_that_refuses(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", stand_in.url)  # it knows no CONNECT
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    error = trouble(tinker("https://tinker.example"))
    assert error.trouble == "away" and "HTTPS_PROXY" in str(error)


def test_other_backends_are_no_providers() -> None:
    with pytest.raises(ConfigError, match="'embedded' is no cloud provider; choose tinker or fireworks"):
        base_url(Settings())


def without_network() -> list[str]:
    """The command that runs a program with the network cut."""
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us cut a network off (unshare -rn)")
    return ["unshare", "-rn"]


@pytest.mark.parametrize("backend", ["tinker", "fireworks"])
def test_the_network_cut(backend: str) -> None:
    code = (
        "from openclaw_rl.trainer_cloud.preflight import diagnose\n"
        "from openclaw_rl.shared.settings.settings import Settings\n"
        f"error = diagnose(Settings(backend={backend!r}, tinker_api_key='tml-k', fireworks_api_key='fw_k'))\n"
        "print(error.trouble, error)"
    )
    environ = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        [*without_network(), sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environ
    )
    assert done.stdout.startswith("away "), done.stderr
    assert f"({backend}_base_url) cannot be reached" in done.stdout and "is there a network?" in done.stdout


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://tinker.thinkingmachines.dev/services/tinker-prod", True),
        ("https://api.thinkingmachines.ai", True),
        ("http://127.0.0.1:8000", False),
        ("https://thinkingmachines.dev.example.org", False),
        ("https://notthinkingmachines.dev", False),
        ("", False),
    ],
)
def test_an_address_is_tinkers_own_by_its_host(url: str, own: bool) -> None:
    assert checking.is_tinkers_own(url) is own
    assert checking.is_tinkers_own(Settings(backend="tinker").cloud.tinker_base_url)
