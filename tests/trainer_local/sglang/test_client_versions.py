"""Versions on SGLang where one real server on a CPU cannot show it: several servers, quantized weights, weights that
cannot be read again. Fakes, and said to be; the real one is in `tests/real`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import Sampling, VersionSpan
from openclaw_rl.trainer_local.models.folder import dtype, problem, quantization
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from openclaw_rl.trainer_local.sglang.full_weights import chosen
from openclaw_rl.trainer_local.sglang.held import Keeping
from openclaw_rl.trainer_local.sglang.labels import BROKEN, lent, me, number, plain, version_of
from openclaw_rl.trainer_local.sglang.rescue import Rescue
from openclaw_rl.trainer_local.sglang.weight_transfer import Batch, _flattened, batched, from_folder, in_type_of
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


def client(url: str, base: Path, checkpoints: Path, most: int = 4, how: str = "auto") -> SglangEngine:
    keeping = Keeping(base=str(base), checkpoints=checkpoints, most=most, transfer=how)
    return SglangEngine(url, patience=1, keeping=keeping)


async def test_a_version_reaches_every_fake_server_behind_a_router(base: Path, checkpoints: Path) -> None:
    servers = [FakeServer(), FakeServer(), FakeServer()]
    async with running(*servers) as url:
        engine = client(url, base, checkpoints)
        await engine.load(1, served(checkpoints, 1), live=True)
        info = await engine.info()
        await engine.close()
    assert (info.live, info.versions, info.beside, info.transfer) == (1, (0, 1), True, "adapter")
    for server in servers:
        (name,) = server.adapters
        assert version_of(name) == 1 and server.label == name


async def test_a_fake_server_that_was_started_anew_is_noticed_and_given_the_version_again(
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


async def test_chat_goes_on_while_one_of_several_fake_servers_is_away(base: Path, checkpoints: Path) -> None:
    servers = [FakeServer(), FakeServer()]
    async with running(*servers) as url:
        engine = client(url, base, checkpoints)
        await engine.load(1, served(checkpoints, 1), live=True)
        first = min(servers, key=lambda server: server.url)
        first.gone = True
        engine._workers.know("")
        answer = await collect(engine.generate([1], Sampling()))
        away = await engine.info()
        first.gone, first.label, first.adapters = False, "default", []
        back = await engine.info()
        await engine.close()
    assert answer.version_numbers == {1} and away.live == 1
    assert back.live == -1, "it is back with another version"


async def test_what_a_router_drops_is_sent_to_the_fake_servers_themselves(base: Path, checkpoints: Path) -> None:
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
        engine = client(url, base, checkpoints, most=3)
        for version in (1, 2, 3, 4):
            await engine.load(version, served(checkpoints, version), live=version == 1)
            assert engine._held is not None
            await engine._held._tidying  # type: ignore[attr-defined]
        await engine.close()
    assert sorted(number(name) for name in server.adapters) == [1, 4]


async def test_a_version_that_is_nowhere_is_told_by_its_number(base: Path, checkpoints: Path) -> None:
    async with running(FakeServer()) as url:
        engine = client(url, base, checkpoints)
        with pytest.raises(EngineError, match="no version 9") as missing:
            await collect(engine.generate([1], Sampling(), version=9))
        await engine.close()
    assert missing.value.status == 404


async def test_a_fake_server_of_another_model_is_refused_and_asked_for_nothing(base: Path, tmp_path: Path) -> None:
    config = json.loads((base / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 7}))
    for told, wrong in (
        ({"model_type": "llama"}, "base is llama, not qwen3"),
        ({"model_path": str(tmp_path)}, f"has vocab_size = 7, not {config['vocab_size']}"),
    ):
        server = FakeServer(**told)
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
            engine.load_tensors(1, lambda: from_folder(served(whole, 1)), served(whole, 1)),
        ):
            with pytest.raises(EngineError, match=r"quantized again; train a LoRA") as refused:
                await load
            assert refused.value.status == 400
        assert not (await engine.info()).beside
        await engine.close()
    assert fake.did == []


async def test_a_change_reaches_every_fake_server_in_the_same_order(base: Path, whole: Path) -> None:
    servers = [FakeServer(enable_lora=False), FakeServer(enable_lora=False)]
    async with running(*servers) as url:
        engine = client(url, base, whole, how="ipc")
        batches = lambda: from_folder(served(whole, 1))  # noqa: E731
        await engine.load_tensors(1, batches, served(whole, 1))
        assert (await engine.info()).live == 1
        again = [list(server.did) for server in servers]
        await engine.load_tensors(1, batches, served(whole, 1))
        await engine.close()
    assert again[0] == again[1] == servers[0].did, "weights that are served already are not sent again"
    assert again[0] == [
        *("update_weight_version", "pause_generation", "flush_cache", "end_weight_update", "begin_weight_update"),
        *("update_weights_from_tensor", "end_weight_update", "update_weight_version", "continue_generation"),
    ]


async def test_a_fake_server_whose_old_weights_cannot_be_read_is_left_to_be_started_anew(
    base: Path, whole: Path
) -> None:
    server = FakeServer(enable_lora=False)
    server.unreadable = {served(whole, 1), str(base)}
    async with running(server) as url:
        engine = client(url, base, whole)
        with pytest.raises(EngineError, match="cannot be read"):
            await engine.load(1, served(whole, 1), live=True)
        info = await engine.info()
        await engine.close()
    assert server.label == BROKEN and info.live == -1 and "broke off" in info.trouble
    assert "continue_generation" not in server.did


@pytest.mark.parametrize(
    ("route", "time", "live"),
    [("update_weight_version", 2, 0), ("end_weight_update", 2, 0), ("continue_generation", 1, 1)],
    ids=["the last label", "the end", "going on"],
)
async def test_fake_servers_of_which_one_fails_at_the_last_moment_all_serve_the_same_and_answer(
    route: str, time: int, live: int, base: Path, whole: Path
) -> None:
    servers = [FakeServer(enable_lora=False), FakeServer(enable_lora=False)]
    servers[1].refuses = {route: time}
    async with running(*servers) as url:
        engine = client(url, base, whole)
        with pytest.raises(EngineError, match="no memory left"):
            await engine.load(1, served(whole, 1), live=True)
        info = await engine.info()
        await engine.close()
    assert servers[1].refuses == {}, "it failed where it was to"
    assert info.live == live and servers[0].label == servers[1].label
    assert [server.paused for server in servers] == [False, False]


async def test_of_two_that_change_fake_servers_weights_at_the_same_moment_one_waits(
    base: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [FakeServer(enable_lora=False), FakeServer(enable_lora=False)]
    both, begin, stand_by = asyncio.Barrier(2), [1, 2], Rescue.stand_by

    async def together(rescue: Rescue) -> None:
        await stand_by(rescue)
        if begin:
            begin.pop()
            await both.wait()

    monkeypatch.setattr(Rescue, "stand_by", together)
    async with running(*servers) as url:
        engines = [client(url, base, whole), client(url, base, whole)]
        changes = [engine.load(version, served(whole, 1), live=True) for version, engine in enumerate(engines, 1)]
        await asyncio.gather(*changes)
        live = (await engines[0].info()).live
        for engine in engines:
            await engine.close()
    change = ["pause_generation", "flush_cache", "end_weight_update", "begin_weight_update"]
    change += ["update_weights_from_disk", "end_weight_update", "continue_generation"]
    for server in servers:
        assert [step for step in server.did if step != "update_weight_version"] == 2 * change
    assert live in (1, 2)


@pytest.mark.parametrize(
    ("setting", "device", "colocated", "how"),
    [
        ("auto", "cuda", True, "ipc"),
        ("auto", "cuda", False, "nccl"),
        ("auto", "cpu", False, "gloo"),
        ("auto", "cpu", True, "gloo"),
        ("disk", "cuda", True, "disk"),
        ("nccl", "cuda", True, "nccl"),
    ],
)
def test_how_weights_go_follows_from_where_both_are(setting: str, device: str, colocated: bool, how: str) -> None:
    assert chosen(setting, {"device": device}, colocated=colocated) == how


def test_a_label_says_what_is_served_whoever_has_the_memory() -> None:
    label = lent("7.0aff", me())
    assert plain(label) == "7.0aff" and number(label) == 7 and plain("7.0aff") == "7.0aff"


def test_batches_hold_no_more_than_they_may() -> None:
    named = [(name, torch.zeros(size)) for name, size in (("a", 10), ("b", 20), ("c", 100), ("d", 1))]
    assert [[name for name, _ in batch] for batch in batched(named, 130)] == [["a", "b"], ["c"], ["d"]]


def test_a_batch_in_one_piece_of_memory_is_the_same_tensors() -> None:
    batch: Batch = [
        ("half", torch.tensor([1.5, 2.5, 3.5], dtype=torch.bfloat16)),
        ("single", torch.arange(6.0).view(2, 3).t()),
        ("flag", torch.tensor([True, False, True])),
        ("number", torch.tensor(7)),
    ]
    flat, views = _flattened(batch)
    given = dict(batch)
    assert {name for name, _ in views} == given.keys()
    for name, view in views:
        assert torch.equal(view, given[name]) and view.dtype == given[name].dtype
        assert view.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()


def test_weights_are_rounded_as_the_engine_would_round_them() -> None:
    batch: Batch = [("w", torch.tensor([1.0001], dtype=torch.float32)), ("n", torch.tensor([3]))]

    def batches() -> Iterator[Batch]:
        yield batch

    ((weight, count),) = in_type_of(batches, "bfloat16")()
    assert weight[1].dtype == torch.bfloat16 and count[1].dtype == torch.int64
    assert in_type_of(batches, "float32") is batches and in_type_of(batches, "auto") is batches


def test_a_folder_says_how_it_is_quantized_and_in_what_type(base: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "gptq", "bits": 4}}')
    assert dtype(str(base)) == "float32" and dtype(str(tmp_path)) == ""
    assert quantization(str(tmp_path)) == "gptq" and quantization(str(base)) == quantization("nowhere") == ""


def test_weights_that_do_not_fit_are_told_from_their_headers(base: Path, whole: Path, tmp_path: Path) -> None:
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
