"""SkyRL's engine with a slot of its own for every set of weights that is sampled from.

SkyRL 0.3.0 loads a sampler checkpoint over the adapter of the model in training that it came from
(`JaxBackendImpl.load_sampler_weights`): training would continue from old weights as soon as an old version is sampled,
and two versions cannot be in one batch. Here each (model, checkpoint) is loaded into a slot that no model in training
has; the one sampled longest ago makes room. So checkpoints outlive their models, as they do at Tinker.

Shapes that XLA compiles are few: batches, answers and stop tokens are filled up to bins.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import skyrl.backends.jax
import skyrl.tinker.engine
import skyrl.tx.utils.models
from flax import nnx
from peft import LoraConfig as PeftConfig
from skyrl.backends.jax import JaxBackend, JaxBackendConfig
from skyrl.tinker import types
from skyrl.tinker.db_models import FutureDB, RequestStatus
from skyrl.tinker.engine import TinkerEngine
from skyrl.tx.layers.lora import init_lora_adapter
from skyrl.tx.utils.generator import GeneratorMixin
from skyrl.tx.utils.models import get_adapter_idx, load_lora_checkpoint, round_up_seq_len
from skyrl.utils.storage import download_and_unpack
from sqlmodel import Session, select

BATCH = 8
"""Answers that are sampled together; there are batches of one, and of so many."""
TOGETHER = 1024
"""The longest prompt, in tokens, that is sampled with others: beyond, filling up costs more than a batch saves."""
STOP_TOKENS = 8
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EXTERNAL = "external-"
"""Begins the name of a sampler checkpoint that was asked for in an external format (`routes`)."""

Version = tuple[str, str]
"""A model and one of its sampler checkpoints."""


class Slots(JaxBackend):
    """The backend; `versions` are in slots, the one sampled longest ago first."""

    def __init__(self, base_model: str, config: JaxBackendConfig) -> None:
        super().__init__(base_model, config)
        self.versions: OrderedDict[Version, int] = OrderedDict()

    @property
    def free(self) -> set[int]:
        """Slots without a model in training; 0 is the base model."""
        return set(range(1, self.config.max_lora_adapters)) - {model.adapter_index for model in self.models.values()}

    def create_model(self, model_id: str, lora_config: types.LoraConfig, model_role: str = "policy") -> None:
        super().create_model(model_id, lora_config, model_role)
        slot = self.models[model_id].adapter_index
        self.versions = OrderedDict((version, held) for version, held in self.versions.items() if held != slot)
        # Gradients that an unloaded model never applied are still in its slot.
        self.accumulated_grads = self.accumulated_grads.reset_adapter(jnp.int32(slot))

    def optim_step(self, model_id: str, request_data: types.OptimStepInput) -> types.OptimStepOutput:
        """SkyRL decays the weights of every slot with those of the one that is stepped."""
        before = jax.tree.map(lambda leaf: leaf, nnx.state(self.model, self.model.is_lora_param))
        done = super().optim_step(model_id, request_data)
        if request_data.adam_params.weight_decay:
            index = self.models[model_id].adapter_index

            def others_as_before(path: Any, old: jax.Array, new: jax.Array) -> jax.Array:
                place = get_adapter_idx(path, index)
                return old.at[place].set(new[place])

            after = nnx.state(self.model, self.model.is_lora_param)
            nnx.update(self.model, jax.tree.map_with_path(others_as_before, before, after))
        return done

    def sample(self, prepared_batch: types.PreparedSampleBatch) -> Any:
        longest = max(len(chunk.tokens) for prompt in prepared_batch.all_model_inputs for chunk in prompt.chunks)
        alone = len(prepared_batch.all_model_inputs) == 1 or longest > TOGETHER
        self.config.sample_max_num_sequences = 1 if alone else BATCH
        return super().sample(prepared_batch)

    def load_sampler_weights(self, prepared_batch: types.PreparedSampleBatch) -> list[int]:
        """The slot of each sample, its weights loaded."""
        asked = zip(prepared_batch.all_model_ids, prepared_batch.all_checkpoint_ids, strict=True)
        paths = dict(zip(asked, prepared_batch.all_checkpoint_paths, strict=True))
        slots = {version: self._slot(version, path, paths) if version[0] else 0 for version, path in paths.items()}
        return [
            slots[version]
            for version in zip(prepared_batch.all_model_ids, prepared_batch.all_checkpoint_ids, strict=True)
        ]

    def _slot(self, version: Version, path: str, in_use: Iterable[Version]) -> int:
        if version not in self.versions:
            empty = self.free - set(self.versions.values())
            if not empty:
                oldest = next(held for held in self.versions if held not in in_use)
                empty = {self.versions.pop(oldest)}
            # The highest: models in training take the lowest.
            self.versions[version] = self._load(path, max(empty))
        self.versions.move_to_end(version)
        return self.versions[version]

    def _load(self, path: str, slot: int) -> int:
        with download_and_unpack(Path(path)) as folder:
            saved = json.loads((folder / "adapter_config.json").read_text())
        config = types.LoraConfig(rank=saved["r"], alpha=saved["lora_alpha"], seed=0)
        init_lora_adapter(self.model, slot, config)
        load_lora_checkpoint(self.model, config, slot, Path(path))
        return slot


class Engine(TinkerEngine):
    """The engine over `Slots`."""

    def find_batchable_sample(self, session: Session) -> dict[str, tuple[str, types.SampleInput]]:
        """The oldest request, and those that can be sampled with it: scoring is not mixed with sampling, and there is
        a slot for every version. SkyRL takes one version of each model.
        """
        query = (
            select(FutureDB)
            .where(FutureDB.request_type == types.RequestType.SAMPLE)
            .where(FutureDB.status == RequestStatus.PENDING)
            .order_by(FutureDB.request_id)
            .limit(4 * BATCH)
        )
        found: dict[str, tuple[str, types.SampleInput]] = {}
        versions: set[Version] = set()
        count = 0
        for future in session.exec(query):
            request = types.SampleInput.model_validate(future.request_data)
            first = next(iter(found.values()), (future.model_id, request))[1]
            together = versions | ({(future.model_id, request.checkpoint_id)} if future.model_id else set())
            fits = not found or count + request.num_samples <= BATCH
            if fits and request.prompt_logprobs == first.prompt_logprobs and len(together) <= len(self.backend.free):
                found[str(future.request_id)] = (future.model_id, request)
                versions, count = together, count + request.num_samples
        return found

    def _filter_valid_requests(self, requests: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """A sampler checkpoint needs no loaded model, only its file."""
        sampled = {
            key: (model, request)
            for key, (model, request) in requests.items()
            if model and isinstance(request, types.SampleInput)
        }
        errors, valid = super()._filter_valid_requests({key: requests[key] for key in requests.keys() - sampled})
        for key, (model, request) in sampled.items():
            if (self.config.checkpoints_base / model / "sampler_weights" / f"{request.checkpoint_id}.tar.gz").exists():
                valid[key] = (model, request)
            else:
                errors[key] = types.ErrorResponse(error=f"{model}/{request.checkpoint_id} is gone", status="failed")
        return errors, valid

    def process_save_weights_for_sampler(self, model_id: str, request_data: types.SaveWeightsForSamplerInput) -> Any:
        """Tells the path that Tinker tells, of three parts; SkyRL's has two."""
        done = super().process_save_weights_for_sampler(model_id, request_data)
        if isinstance(done, types.ErrorResponse) or done.path is None:
            return done
        name = Path(request_data.path).name
        kind = "sampler_weights"
        if name.startswith(EXTERNAL):
            name, kind, done.type = name.removeprefix(EXTERNAL), "external_weights", "save_weights_external"
        done.path = f"tinker://{model_id}/{kind}/{name}"
        return done


def binned(length: int) -> int:
    """A length filled up: few for short ones, where a compilation costs more than what is computed in vain."""
    return max(64, 1 << (length - 1).bit_length()) if length <= TOGETHER else round_up_seq_len(length)


def _in_bins(
    decode: Any,
    model: Any,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    max_length: int,
    max_new_tokens: int,
    adapter_indices: jax.Array,
    temperatures: jax.Array,
    rngs: jax.Array,
    stop_tokens: jax.Array,
    *rest: Any,
    **options: Any,
) -> Any:
    """`GeneratorMixin._prefill_and_decode`, which compiles for every length of answer and number of stop tokens; what
    is beyond a request's own length is cut off after it.
    """
    if max_new_tokens > 1:  # a text is scored with an answer of one token
        max_new_tokens = binned(max_new_tokens)
    max_length = input_ids.shape[1] + max_new_tokens
    stop_tokens = jnp.pad(stop_tokens, ((0, 0), (0, -stop_tokens.shape[1] % STOP_TOKENS)), constant_values=-1)
    if not stop_tokens.shape[1]:
        stop_tokens = jnp.full((input_ids.shape[0], STOP_TOKENS), -1, dtype=jnp.int32)
    return decode(
        *(model, input_ids, attention_mask, max_length, max_new_tokens, adapter_indices, temperatures, rngs),
        *(stop_tokens, *rest),
        **options,
    )


def _backend(name: str, use_ray: bool = False) -> tuple[type[Slots], type[JaxBackendConfig]]:
    return Slots, JaxBackendConfig


skyrl.tinker.engine.get_backend_classes = _backend
skyrl.backends.jax.round_up_seq_len = binned
GeneratorMixin._prefill_and_decode = staticmethod(partial(_in_bins, GeneratorMixin._prefill_and_decode))
# Without them PEFT guesses which modules the adapter is for.
skyrl.tx.utils.models.peft.LoraConfig = partial(PeftConfig, target_modules=TARGETS)
