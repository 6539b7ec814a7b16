"""The policy that a data folder belongs to, and the keys of its service.

Token ids of one model's tokenizer must never train another model, so `policy.json` names the policy from the first
start on. A model is the same while its name or its files are. Its tokenizer is compared by the token of each id, so a
rewritten file makes no difference.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import read_json, write_json
from openclaw_rl.shared.settings.named_models import POLICY_FILE, TINY, find_named
from openclaw_rl.shared.settings.settings import Settings

FILE = POLICY_FILE
KEY = "api_key"
"""The file with the key of clients, in plain, since commands on this machine write it into their configurations."""
ADMIN_KEY = "admin_key"
"""The file with the key of the operator, in plain, since commands on this machine send it."""
SHIPPED = "the shipped policy"
_EDGE_BYTES = 1 << 16


def keep_private(folder: Path) -> None:
    """Make a folder that its owner alone may enter, or narrow one that is there: what people said is in logs and
    weights. The data folder around it may be one that its owner shares, so it is left as it is. Raises `OSError`.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        folder.chmod(0o700)


def stored_key(data: Path, name: str = KEY) -> str:
    """A key in the data folder, made at the first call; readable by its owner only."""
    path = data / name
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    key = path.read_text().strip()
    if not key:
        raise ConfigError(f"{path} is empty; remove it to have a new one made")
    return key


class Policy(msgspec.Struct, frozen=True):
    """A policy: its backend, the name its owner gives it, and digests of its tokenizer and its files ("" where they are
    not here).
    """

    backend: str
    model: str
    tokenizer: str = ""
    files: str = ""

    @classmethod
    def from_settings(cls, settings: Settings, name: str) -> Policy:
        """The policy of settings with folders; `name` is the model as its owner wrote it."""
        folder = Path(settings.engine.model)
        if named := find_named(name):
            name = SHIPPED if named is TINY else named.name
        elif Path(name).is_dir():
            name = str(Path(name).resolve())
        files = _digest(_file_parts(folder)) if folder.is_dir() else ""
        return cls(settings.engine.backend, name, _tokens(Path(settings.engine.tokenizer_path)), files)

    def differs(self, other: Policy) -> str:
        """The reason why conversations of one cannot train the other; "" if there is none."""
        if self.backend != other.backend:
            return f"it runs on {self.backend}, and this is {other.backend}"
        if self.model != other.model and not (self.files and self.files == other.files):
            return f"it is {self.model}, and this is {other.model}"
        if self.tokenizer and other.tokenizer and self.tokenizer != other.tokenizer:
            return f"it has another tokenizer than {other.model} has now"
        return ""


def hold(settings: Settings, name: str) -> None:
    """Note in the data folder which policy it belongs to. Raises `ConfigError` where that is another one."""
    path = settings.serve.data / FILE
    if problem := mismatch(settings, name):
        raise ConfigError(problem)
    if _kept(path) is None:
        write_json(path, msgspec.to_builtins(Policy.from_settings(settings, name)))


def mismatch(settings: Settings, name: str) -> str:
    """The reason why this policy cannot continue with the data folder, and what to do; "" if it can."""
    kept = _kept(settings.serve.data / FILE)
    difference = kept.differs(Policy.from_settings(settings, name)) if kept is not None else ""
    if kept is None or not difference:
        return ""
    back = f"--backend {kept.backend} --model {TINY.name if kept.model == SHIPPED else kept.model}"
    return (
        f"the data folder {settings.serve.data} belongs to another policy, which cannot learn from the same "
        f"conversations: {difference}. Choose another folder with --data (OPENCLAW_RL_DATA), or return to that policy: "
        f"{back}" + (" and the tokenizer that it had" if "tokenizer" in difference else "")
    )


def _kept(path: Path) -> Policy | None:
    try:
        return msgspec.convert(read_json(path), Policy)
    except msgspec.ValidationError:
        return None


class _Added(msgspec.Struct):
    id: int
    content: str


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _Tokenizer(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = []


def _tokens(folder: Path) -> str:
    """A digest of which token each id means."""
    try:
        spec = msgspec.json.decode((folder / "tokenizer.json").read_bytes(), type=_Tokenizer)
    except (OSError, msgspec.DecodeError):
        return ""
    vocab = spec.model.vocab
    pairs = vocab.items() if isinstance(vocab, dict) else ((token, place) for place, (token, _) in enumerate(vocab))
    tokens = {place: token for token, place in pairs}
    tokens |= {added.id: added.content for added in spec.added_tokens}
    return _digest(f"{place}\0{tokens[place]}\0".encode() for place in sorted(tokens))


def _file_parts(folder: Path) -> Iterator[bytes]:
    """A model's config, and sizes, beginnings and ends of its weights."""
    config: Any = read_json(folder / "config.json") or {}
    yield msgspec.json.encode({name: config[name] for name in config if name != "transformers_version"}, order="sorted")
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        size = path.stat().st_size
        yield f"{path.name} {size}".encode()
        with path.open("rb") as file:
            yield file.read(_EDGE_BYTES)
            file.seek(max(0, size - _EDGE_BYTES))
            yield file.read(_EDGE_BYTES)


def _digest(parts: Iterator[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
