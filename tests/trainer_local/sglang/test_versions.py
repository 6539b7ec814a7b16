"""Versions on SGLang where one real server on a CPU cannot show it: several servers, quantized weights, weights that
cannot be read again. Fakes, and said to be; the real one is in `tests/real`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from openclaw_rl.shared.engine.answers import BROKEN
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import Sampling, VersionSpan
from openclaw_rl.trainer_local.models.folder import dtype, problem, quantization
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from openclaw_rl.trainer_local.sglang.owner import Owner
from openclaw_rl.trainer_local.sglang.versions import Adapters, VersionStore, version_of
from tests.trainer_local.fake_fleet import FakeServer, running
from tests.trainer_local.serving import collect, write_adapter, write_model


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def checkpoints(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    for version in (1, 2, 3, 4):
        write_adapter(base, folder / str(version) / "served", seed=version)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 of all weights."""
    folder = tmp_path_factory.mktemp("whole")
    write_model(folder / "1" / "served", seed=1)
    return folder


def served(checkpoints: Path, version: int) -> str:
    return str(checkpoints / str(version) / "served")


def client(url: str, base: Path, checkpoints: Path) -> SglangEngine:
    return SglangEngine(url, patience=1, store=VersionStore(str(base), checkpoints), owns=True)


async def test_a_version_reaches_every_fake_server_behind_a_router(base: Path, checkpoints: Path) -> None:
    servers = [FakeServer(), FakeServer(), FakeServer()]
    async with running(*servers) as url:
        engine = client(url, base, checkpoints)
        await engine.load(1, served(checkpoints, 1), live=True)
        info = await engine.info()
        await engine.close()
    assert (info.live, info.versions, info.several_versions, info.transfer) == (1, (0, 1), True, "adapter")
    for server in servers:
        (name,) = server.adapters
        assert version_of(name) == 1 and server.label == name


async def test_a_fake_server_that_was_restarted_is_noticed_and_given_the_version_again(
    base: Path, checkpoints: Path
) -> None:
    servers = [FakeServer(), FakeServer()]
    async with running(*servers) as url:
        engine = client(url, base, checkpoints)
        await engine.load(1, served(checkpoints, 1), live=True)
        servers[0].adapters.clear()
        answer = await collect(engine.generate([1], Sampling(), version=1))
        servers[1].label, servers[1].adapters = "default", []
        info = await engine.info()
        await engine.load(1, served(checkpoints, 1), live=True)
        mended = await engine.info()
        await engine.close()
    assert answer.version_numbers == {1} and list(answer.last.versions) == [VersionSpan(1, 0, 1)]
    assert info.live == -1 and mended.live == 1 and servers[0].adapters == servers[1].adapters


async def test_chat_continues_while_one_of_several_fake_servers_is_away(base: Path, checkpoints: Path) -> None:
    servers = [FakeServer(), FakeServer()]
    async with running(*servers) as url:
        engine = client(url, base, checkpoints)
        await engine.load(1, served(checkpoints, 1), live=True)
        first = min(servers, key=lambda server: server.url)
        first.gone = True
        engine._forget()
        answer = await collect(engine.generate([1], Sampling()))
        away = await engine.info()
        first.gone, first.label, first.adapters = False, "default", []
        back = await engine.info()
        await engine.close()
    assert answer.version_numbers == {1} and away.live == 1
    assert back.live == -1, "it is back with another version"


async def test_a_field_that_a_router_drops_is_sent_to_the_fake_servers_themselves(
    base: Path, checkpoints: Path
) -> None:
    servers = [FakeServer(), FakeServer()]
    async with running(*servers) as url:
        engine = client(url, base, checkpoints)
        for _ in range(2):
            answer = await collect(engine.generate([1], Sampling(top_p=0.9)))
            assert answer.logprobs == [-0.25]
        await collect(engine.generate([1], Sampling()))
        await engine.close()
    masks = [[body.get("return_sampling_mask", False) for body in server.asked] for server in servers]
    assert masks in ([[True, False], [True]], [[True], [True, False]])


async def test_a_fake_server_that_drops_the_filtered_logprobs_is_caught(base: Path, checkpoints: Path) -> None:
    class Forgetful(FakeServer):
        async def generate(self, request):  # type: ignore[no-untyped-def]
            request._read_bytes = (await request.read()).replace(b"return_sampling_mask", b"x")
            return await super().generate(request)

    async with running(Forgetful()) as url:
        engine = client(url, base, checkpoints)
        with pytest.raises(EngineError, match="0 logprobs for 1 tokens"):
            await collect(engine.generate([1], Sampling(top_p=0.9)))
        await engine.close()


async def test_a_fake_server_keeps_the_live_adapter_and_those_used_last(base: Path, checkpoints: Path) -> None:
    server = FakeServer()
    async with running(server) as url:
        owner = Owner(url, VersionStore(str(base), checkpoints, max_versions=3))
        for version in (1, 2, 3, 4):
            await owner.load(version, served(checkpoints, version), live=version == 1)
            assert isinstance(owner._versions, Adapters)
            await owner._versions.settle()
        await owner.close()
    assert sorted(map(version_of, server.adapters)) == [1, 4]


async def test_a_missing_version_is_named_by_its_number(base: Path, checkpoints: Path) -> None:
    async with running(FakeServer()) as url:
        engine = client(url, base, checkpoints)
        with pytest.raises(EngineError, match="no version 9") as missing:
            await collect(engine.generate([1], Sampling(), version=9))
        await engine.close()
    assert missing.value.status == 404


async def test_a_fake_server_of_another_model_is_refused_and_asked_for_nothing(base: Path, tmp_path: Path) -> None:
    config = json.loads((base / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 7}))
    for reported, wrong in (
        ({"model_type": "llama"}, "base is llama, not qwen3"),
        ({"model_path": str(tmp_path)}, f"has vocab_size = 7, not {config['vocab_size']}"),
    ):
        server = FakeServer(**reported)
        async with running(server) as url:
            engine = client(url, base, tmp_path)
            with pytest.raises(EngineError, match=wrong) as refused:
                await collect(engine.generate([1], Sampling()))
            assert refused.value.status == 501 and not server.asked
            await engine.close()
    server = FakeServer(model_type="qwen3", model_path=str(base))
    async with running(server) as url:
        engine = client(url, base, tmp_path)
        assert (await collect(engine.generate([1], Sampling()))).ids == [7]
        await engine.close()


@pytest.mark.parametrize("server", [{"quantization": "fp8"}, {"quantization": "awq"}], ids=str)
async def test_full_weights_onto_a_quantized_fake_server_are_refused_with_the_reason(
    server: dict[str, str], base: Path, whole: Path
) -> None:
    fake = FakeServer(enable_lora=False, **server)
    async with running(fake) as url:
        engine = client(url, base, whole)
        for load in (
            engine.load(1, served(whole, 1), live=True),
            engine.load_tensors(1, lambda: iter(()), served(whole, 1)),
        ):
            with pytest.raises(EngineError, match=r"quantized again; train a LoRA") as refused:
                await load
            assert refused.value.status == 400
        assert not (await engine.info()).several_versions
        await engine.close()
    assert "pause_generation" not in fake.did


async def test_a_change_reaches_every_fake_server_in_the_same_order(base: Path, whole: Path) -> None:
    servers = [FakeServer(enable_lora=False), FakeServer(enable_lora=False)]
    async with running(*servers) as url:
        owner = Owner(url, VersionStore(str(base), whole))
        await owner.load(1, served(whole, 1), live=True)
        again = [list(server.did) for server in servers]
        await owner.load(1, served(whole, 1), live=True)
        await owner.close()
    assert again[0] == again[1] == servers[0].did, "weights that are served already are not read again"
    assert again[0] == [
        *("pause_generation", "flush_cache", "begin_weight_update", "update_weights_from_disk"),
        *("update_weight_version", "end_weight_update", "continue_generation"),
    ]


@pytest.mark.parametrize("updating", [True, False], ids=["changing weights", "about to continue"])
async def test_an_unfinished_update_of_a_killed_owner_is_undone_by_the_next(
    updating: bool, base: Path, whole: Path
) -> None:
    server = FakeServer(enable_lora=False)
    server.paused, server.updating = True, updating
    async with running(server) as url:
        engine = client(url, base, whole)
        info = await engine.info()
        await engine.close()
    assert (info.live, info.trouble, server.paused, server.updating) == (0, "", False, False)
    assert ("update_weights_from_disk" in server.did) is updating


async def test_only_the_owner_changes_the_full_weights_of_a_fake_server(base: Path, whole: Path) -> None:
    server = FakeServer(enable_lora=False)
    async with running(server) as url:
        engine = SglangEngine(url, patience=1, store=VersionStore(str(base), whole))
        with pytest.raises(EngineError, match="changed by the learner") as refused:
            await engine.load(1, served(whole, 1), live=True)
        await engine.close()
    assert refused.value.status == 503 and server.did == []


async def test_a_fake_server_whose_old_weights_cannot_be_read_is_left_for_a_restart(base: Path, whole: Path) -> None:
    server = FakeServer(enable_lora=False)
    server.unreadable = {served(whole, 1), str(base)}
    async with running(server) as url:
        engine = client(url, base, whole)
        with pytest.raises(EngineError, match="cannot be read"):
            await engine.load(1, served(whole, 1), live=True)
        info = await engine.info()
        await engine.close()
    assert server.label == BROKEN and info.live == -1 and "broke off" in info.trouble
    assert server.paused


@pytest.mark.parametrize("route", ["update_weight_version", "end_weight_update"])
async def test_fake_servers_of_which_one_fails_at_the_last_moment_all_serve_the_old_weights_and_answer(
    route: str, base: Path, whole: Path
) -> None:
    servers = [FakeServer(enable_lora=False), FakeServer(enable_lora=False)]
    async with running(*servers) as url:
        engine = client(url, base, whole)
        await engine.info()
        servers[1].refuses = {route: 1}
        with pytest.raises(EngineError, match="no memory left"):
            await engine.load(1, served(whole, 1), live=True)
        info = await engine.info()
        await engine.close()
    assert servers[1].refuses == {}, "it failed where it was to"
    assert info.live == 0 and servers[0].label == servers[1].label
    assert [server.paused for server in servers] == [False, False]


async def test_a_fake_server_that_does_not_continue_at_once_is_asked_again(base: Path, whole: Path) -> None:
    servers = [FakeServer(enable_lora=False), FakeServer(enable_lora=False)]
    async with running(*servers) as url:
        engine = client(url, base, whole)
        await engine.info()
        servers[1].refuses = {"continue_generation": 1}
        await engine.load(1, served(whole, 1), live=True)
        info = await engine.info()
        await engine.close()
    assert servers[1].refuses == {} and info.live == 1
    assert [server.paused for server in servers] == [False, False]


@pytest.mark.parametrize(
    ("setting", "device", "colocated", "way"),
    [
        ("auto", "cuda", True, "disk"),
        ("auto", "cuda", False, "nccl"),
        ("auto", "cpu", False, "gloo"),
        ("auto", "cpu", True, "gloo"),
        ("disk", "cuda", True, "disk"),
        ("nccl", "cuda", True, "nccl"),
    ],
)
async def test_the_transfer_of_full_weights_follows_from_the_devices(
    setting: str, device: str, colocated: bool, way: str, base: Path
) -> None:
    async with running(FakeServer(enable_lora=False, device=device)) as url:
        engine = SglangEngine(url, store=VersionStore(str(base)), transfer=setting, colocated=colocated)
        assert (await engine.info()).transfer == way
        await engine.close()


def test_a_folder_says_how_it_is_quantized_and_in_what_type(base: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "gptq", "bits": 4}}')
    assert dtype(str(base)) == "float32" and dtype(str(tmp_path)) == ""
    assert quantization(str(tmp_path)) == "gptq" and quantization(str(base)) == quantization("nowhere") == ""


def test_weights_that_do_not_fit_are_recognised_by_their_headers(base: Path, whole: Path, tmp_path: Path) -> None:
    assert problem(served(whole, 1), str(base)) == "" and problem("/elsewhere/served", str(base)) == ""
    assert "no folder" in problem("served", str(base)) and "holds no model" in problem(str(tmp_path), str(base))
    wide = write_model(tmp_path / "wide", hidden_size=64)
    assert "another architecture" in problem(str(wide), str(base))
    (tmp_path / "config.json").write_text("{}")
    save_file({"model.norm.weight": torch.zeros(48)}, tmp_path / "model.safetensors")
    assert "lacks model." in problem(str(tmp_path), str(base))
    save_file({"other": torch.zeros(48)}, tmp_path / "model.safetensors")
    assert "no weight of the same name" in problem(str(tmp_path), str(base))
    adapter = write_adapter(base, tmp_path / "adapter")
    assert "started without --enable-lora" in problem(str(adapter), str(base))
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    assert "is no safetensors file" in problem(str(tmp_path), str(base))
