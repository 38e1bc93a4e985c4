"""Policies on disk and in memory: from scratch, Hugging Face, with or without LoRA; safetensors only.

A checkpoint is a folder: ``config.json``, ``model.safetensors`` (or a PEFT adapter), the tokenizer's files, and
``agentprm.json``, which names the tokenizer the weights were trained with. A folder whose tokenizer is another one is
refused. ``source`` may also be a published model, a folder or a Hugging Face id: then nothing of ours is expected in
it. An adapter's checkpoint keeps the digest of the weights that it was trained on, and is refused with others.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from agentprm_core.errors import CheckpointError, DataError
from agentprm_core.policy.hub import require_named, require_on_hub
from agentprm_core.policy.playing import is_plain, load_playing
from agentprm_core.policy.playing_tokenizer import PlayingTokenizer, has_plain_tokenizer
from agentprm_core.policy.previous_token import look_back
from agentprm_core.policy.prompt import Renderer, make_renderer
from agentprm_core.policy.shipped import is_shipped, shipped
from agentprm_core.types import NO_PROMPT, Prompt
from agentprm_core.worlds import measured_in, world_spec
from agentprm_core.worlds.base import ALIKE

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

MANIFEST = "agentprm.json"
KINDS = ("policy", "prm")
EMBEDDING_STD = 0.3
"""Of a from-scratch model's embeddings. A step of Adam moves a coordinate by up to the learning rate, 0.002: at the
library's 0.02 ten steps can undo what the names of one kind share, at 0.3 they cannot. Before training such a model is
sure of its nonsense: it says the last token again."""
_ADAPTER = "adapter_config.json"
_WEIGHT_FILES = ("*.safetensors", _ADAPTER, "config.json", "tokenizer.json")


@dataclass(frozen=True)
class Checkpoint:
    """A language model and how to speak with it. A PRM is one too: its model scores tokens, it predicts none.

    One that was loaded to play (``plays``) may have a :class:`agentprm_core.policy.playing.PlayingLlama` as its model,
    and a :class:`agentprm_core.policy.playing_tokenizer.PlayingTokenizer`.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    digest: str
    """:func:`checkpoint_digest` of its folder; of a model by its id, of the files that were downloaded."""
    world: str = ""
    """The world that it was trained in, as ``env.world`` has it; empty where that is not recorded."""
    adapter: Path | None = None
    """The folder of its LoRA adapter, if it was loaded with one: servers of the base load it from there."""
    members: tuple[Checkpoint, ...] = ()
    """Of an ensemble of PRMs (:mod:`agentprm_core.prm.ensemble`), which benchmarks make; ``model`` is the first one's.
    Their key-value caches are not counted in ``compute.cache_mb``."""
    lowest: bool = False
    """Of an ensemble: its score is the lowest of the members', in place of their mean."""


def new_model(
    tokenizer: PreTrainedTokenizerBase,
    *,
    width: int,
    layers: int,
    heads: int,
    kv_heads: int,
    context: int,
    seed: int,
    previous_token_heads: int = 0,
    alike: str = ALIKE,
) -> LlamaForCausalLM:
    """A Llama-architecture model with random weights. Embeddings are shared between input and output.

    ``previous_token_heads``: heads of the first layer that start by looking at the token before, the one before that,
    and so on (:mod:`agentprm_core.policy.previous_token`).

    The embedding of an entity (``drawer 3``) starts as that of its word and that of its number together, and the bare
    word starts as its own: what is learnt of one drawer then holds for all of them, and for the drawer of the task.
    ``alike``: which tokens start as their words together (:attr:`agentprm_core.worlds.base.WorldSpec.alike`).
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    if width % heads or heads % kv_heads:
        raise ValueError(f"width {width} must divide by heads {heads}, and heads by kv_heads {kv_heads}")
    torch.manual_seed(seed)
    marks = cast(Any, tokenizer)  # whose stubs say that a number may be many or a text
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        attention_bias=previous_token_heads > 0,
        bos_token_id=marks.bos_token_id,
        eos_token_id=marks.eos_token_id,
        pad_token_id=marks.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    _share_names(model, tokenizer.get_vocab(), alike)
    look_back(model, previous_token_heads)
    return model


@torch.no_grad()
def _share_names(model: LlamaForCausalLM, vocabulary: dict[str, int], alike: str) -> None:
    """Start all embeddings at one scale, those of tokens that name the same kind of thing near each other."""
    embedding_VD = embedding_of(model).weight
    embedding_VD.mul_(EMBEDDING_STD / model.config.initializer_range)
    names = {token: index for token, index in sorted(vocabulary.items()) if re.fullmatch(alike, token)}
    parts: dict[str, torch.Tensor] = {}
    for part in sorted({part for name in names for part in name.split()}):
        parts[part] = torch.randn(embedding_VD.shape[1]) * EMBEDDING_STD
        if part in vocabulary:
            embedding_VD[vocabulary[part]] = parts[part]
    for name, index in names.items():
        # its own part keeps names apart; the squares of the weights add up to about one, the scale of all embeddings
        words = name.split()
        share = math.sqrt(0.98 / len(words))
        embedding_VD[index] = sum(share * parts[word] for word in words) + 0.2 * embedding_VD[index]


def without_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """The model that an adapter is on; one without an adapter itself."""
    return cast(Any, model).get_base_model() if hasattr(model, "peft_config") else model


def adapter_of(model: PreTrainedModel) -> PeftConfig:
    """What adapter a model has."""
    return cast(Any, model).peft_config["default"]


def embedding_of(model: PreTrainedModel) -> nn.Embedding:
    """Of its tokens."""
    return cast(nn.Embedding, model.get_input_embeddings())


def load_checkpoint(
    source: str | Path,
    *,
    kind: str = "policy",
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    prompt: Prompt = NO_PROMPT,
    revision: str | None = None,
    plays: bool = False,
) -> Checkpoint:
    """The policy or PRM at ``source``: a checkpoint folder (full or PEFT adapter), ``shipped:NAME``, or a Hugging Face
    id.

    ``prompt``: the world's, for a model that comes without one of ours (a published chat model). ``revision``: the
    commit of a model by its id; of a folder, the digest that its weights must have. ``plays``: it will only play and
    score; then a model of ours is read without transformers' classes (:mod:`agentprm_core.policy.playing`).

    Raises:
        CheckpointError: the folder is not a checkpoint, or not of this kind, its tokenizer is not the one the weights
            were trained with, the weights are not those of ``revision``, or what was shipped has changed.
        DataError: no agent of this name is shipped.
    """
    if is_shipped(source):
        ours = shipped(source, kind)
        if (digest := checkpoint_digest(ours.folder)) != ours.digest:
            raise CheckpointError(
                f"{source}: {ours.folder} has digest {digest}, and {ours.digest} was shipped; install the package anew"
            )
        source = ours.folder
    folder = Path(source)
    if not folder.exists():
        require_named(source, kind, revision)
    manifest = _read_manifest(folder, kind) if folder.exists() else {}
    plain = plays and bool(manifest) and is_plain(folder, kind)
    tokenizer = _tokenizer(source, revision, plain)
    if manifest and manifest["tokenizer"] != tokenizer_digest(tokenizer):
        raise CheckpointError(
            f"{folder}: its tokenizer (digest {tokenizer_digest(tokenizer)}) is not the one its weights were trained "
            f"with ({manifest['tokenizer']}); restore the folder with `dvc checkout`"
        )
    digest = checkpoint_digest(folder) if folder.exists() else ""
    if digest and not manifest and revision not in (None, digest):
        raise CheckpointError(f"{folder}: its weights have the digest {digest}, model.revision asks for {revision}")
    model: Any = load_playing(folder, kind, dtype) if plain else _model(source, kind, manifest, revision, dtype)
    embedded = embedding_of(model).num_embeddings
    if embedded < len(tokenizer):
        raise CheckpointError(f"{source}: the model embeds {embedded} tokens, its tokenizer has {len(tokenizer)}")
    renderer = make_renderer(tokenizer, _told(manifest) if manifest else prompt)
    world, adapter = manifest.get("world", ""), folder.resolve() if manifest.get("base") else None
    digest = digest or _pinned(source, revision)
    return Checkpoint(model.to(device).eval(), tokenizer, renderer, digest, world, adapter)


def measured_where(source: str | Path | None) -> str:
    """The world that the policy at ``source`` (``shipped:NAME`` too) is measured in
    (:func:`agentprm_core.worlds.measured_in`); no weights are read. Empty where it is not recorded what it was trained
    in. Raises DataError where no agent of this name is shipped."""
    if source is None:
        return ""
    manifest = (shipped(source, "policy").folder if is_shipped(source) else Path(source)) / MANIFEST
    return measured_in(json.loads(manifest.read_text()).get("world", "")) if manifest.exists() else ""


def merged(checkpoint: Checkpoint) -> Checkpoint:
    """The same policy or PRM with its adapter, if it has one, made part of the weights: to play, without an
    adapter's products beside each layer's. ``checkpoint`` is used up."""
    if not hasattr(checkpoint.model, "peft_config"):
        return checkpoint
    return replace(checkpoint, model=cast(Any, checkpoint.model).merge_and_unload())


def _told(manifest: dict[str, Any]) -> Prompt:
    return Prompt(manifest.get("instruction", ""), manifest.get("lists_commands", True))


def _tokenizer(source: str | Path, revision: str | None, plain: bool) -> PreTrainedTokenizerBase:
    if plain and has_plain_tokenizer(Path(source)):
        return cast(Any, PlayingTokenizer(Path(source)))
    if plain:
        from transformers import PreTrainedTokenizerFast

        return _loaded(PreTrainedTokenizerFast, source, revision)
    from transformers import AutoTokenizer

    return _loaded(AutoTokenizer, source, revision)


def require_world(checkpoint: Checkpoint, source: str | Path, world: str) -> None:
    """Refuse a checkpoint from scratch in a world that it was not trained in: it does not know the words.

    A language model may play anywhere, and so may one whose world is not recorded. One of several worlds may play each
    of them, and each world with the same texts (``WorldSpec.texts_of``). ``world``: a name, or package.module:SPEC.
    Raises CheckpointError.
    """
    known, members = _worlds_like(checkpoint.world or world)
    if checkpoint.renderer.format == "plain" and (known | members).isdisjoint(_worlds_like(world)[0]):
        raise CheckpointError(
            f"{source}: trained from scratch in the world {checkpoint.world}, it cannot play {world}; "
            f"choose a checkpoint trained in {world}, or games of {checkpoint.world}"
        )


def _model(
    source: str | Path, kind: str, manifest: dict, revision: str | None, dtype: torch.dtype
) -> Any:  # it may be a PeftModel, which has all of a PreTrainedModel that is used
    """The weights, with the adapter in the folder ``source`` where ``manifest`` names what it is on."""
    from transformers import AutoModelForCausalLM, AutoModelForTokenClassification
    from transformers.utils import logging

    base, options = manifest.get("base") or source, {"dtype": dtype, "use_safetensors": True}
    revision = manifest.get("revision") if manifest.get("base") else revision
    if kind == "policy":
        model = _loaded(AutoModelForCausalLM, base, revision, **options)
    else:
        said = logging.get_verbosity()
        logging.set_verbosity_error()  # a base has no score yet, which an adapter's folder has
        model = _loaded(AutoModelForTokenClassification, base, revision, num_labels=1, **options)
        if manifest.get("base"):
            model.config.likelihood = manifest.get("likelihood", 0.0)  # an adapter's folder has no configuration
        logging.set_verbosity(said)
    if not manifest.get("base"):
        return model
    from peft import PeftModel

    model.config.base_digest = _same_base(Path(source), manifest)
    return PeftModel.from_pretrained(model, source, is_trainable=True)  # as full weights are


def _loaded(kind: Any, source: str | Path, revision: str | None, **options: object) -> Any:
    """What transformers makes of ``source``. A folder has no revisions; what is wrong with one is one line. A model by
    its id comes from the hub's cache where that has it."""
    source = str(source)
    if not Path(source).exists():
        options["revision"] = revision
        here = {"local_files_only": True}
        with suppress(OSError, ValueError):
            also = {"adapter_kwargs": here} if "dtype" in options else {}  # a model's file of an adapter, too
            return kind.from_pretrained(source, **here, **also, **options)
        require_on_hub(source, revision)
    try:
        return kind.from_pretrained(source, **options)
    except (OSError, ValueError, KeyError) as error:
        said = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{source}: transformers cannot load it as a model: {said}") from error


def _pinned(source: str | Path, revision: str | None) -> str:
    """Digest of the files of a model by its id, which lie in the hub's cache."""
    from huggingface_hub import snapshot_download

    files = {"repo_id": str(source), "allow_patterns": [*_WEIGHT_FILES]}
    here = Path(snapshot_download(revision=revision, local_files_only=True, **files))
    with suppress(CheckpointError):  # without the hub: of the files that were loaded
        require_on_hub(source, here.name)
        here = Path(snapshot_download(revision=here.name, **files))
    return checkpoint_digest(here)


def _same_base(folder: Path, manifest: dict) -> str:
    """Digest of the weights that an adapter goes with. Raises CheckpointError where they are not those it was trained
    on."""
    base = manifest["base"]
    now = checkpoint_digest(Path(base)) if Path(base).exists() else _pinned(base, manifest.get("revision"))
    if manifest.get("base_digest") not in (None, now):
        raise CheckpointError(
            f"{folder}: its adapter was trained on the weights {manifest['base_digest']} of {base}, whose digest is "
            f"now {now}; put those back, or train the adapter anew"
        )
    return now


def _worlds_like(name: str) -> tuple[set[str], set[str]]:
    """The names of the world of this name and of the one whose texts it has, and those that it is a mixture of."""
    try:
        spec = world_spec(name)
    except DataError:  # somebody's own, not named as it is imported
        return {name}, set()
    return {name, spec.name, spec.texts}, set(spec.members)


def save_checkpoint(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    kind: str = "policy",
    prompt: Prompt = NO_PROMPT,
    world: str = "",
) -> str:
    """Write a checkpoint folder and return its digest. Make it appear whole: ``datasets.atomic_write``. ``world``: the
    one it was trained in, as ``env.world`` has it; ``prompt``: what that one says to a chat model."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    peft = getattr(model, "peft_config", None)
    manifest = {
        "kind": kind,
        "tokenizer": tokenizer_digest(tokenizer),
        "base": peft["default"].base_model_name_or_path if peft else None,
        **asdict(prompt),
        "world": world,
    }
    if peft:
        config = without_adapter(model).config
        manifest |= {"revision": peft["default"].revision, "base_digest": getattr(config, "base_digest", None)}
        if likelihood := getattr(config, "likelihood", 0.0):
            manifest["likelihood"] = likelihood
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    return checkpoint_digest(folder)


def checkpoint_digest(folder: Path) -> str:
    """First 16 hex digits of the SHA-256 over the checkpoint's weights, configuration and tokenizer. An adapter's
    covers the digest of the weights that it goes with, and not where they lie."""
    files = sorted({file for pattern in _WEIGHT_FILES for file in folder.glob(pattern)})
    if not any(file.suffix == ".safetensors" for file in files):
        raise CheckpointError(f"{folder}: no *.safetensors in it; is it a checkpoint, and is it whole?")
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode())
        if file.name == _ADAPTER:
            total.update(_adapters_part(folder).encode())
            continue
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()[:16]


def _adapters_part(folder: Path) -> str:
    """What an adapter's configuration and manifest say of how it is applied and to what."""
    config, manifest = json.loads((folder / _ADAPTER).read_text()), folder / MANIFEST
    told = json.loads(manifest.read_text()) if manifest.exists() else {}
    base, likelihood = told.get("base_digest"), [told["likelihood"]] if "likelihood" in told else []
    kept = {name: value for name, value in config.items() if base is None or name != "base_model_name_or_path"}
    return json.dumps([kept, base, *likelihood], sort_keys=True)


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """First 16 hex digits of the SHA-256 of the vocabulary with its ids."""
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(vocabulary.encode()).hexdigest()[:16]


def playing_dtype(precision: str) -> torch.dtype:
    """Of weights that only play or score: ``precision`` is ``float32`` or ``bfloat16``. A processor without
    instructions for bfloat16 plays slower in it."""
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def _read_manifest(folder: Path, kind: str) -> dict:
    path = folder / MANIFEST
    if not path.exists():
        if kind == "prm" or not (folder / "config.json").exists():
            missing = MANIFEST if kind == "prm" else f"{MANIFEST}, nor the config.json of a published model"
            raise CheckpointError(f"{folder}: no {missing} in it; is it a checkpoint, and is it whole?")
        return {}  # a published model, downloaded to a folder
    manifest = json.loads(path.read_text())
    if manifest["kind"] != kind:
        raise CheckpointError(f"{folder}: holds a {manifest['kind']}, not a {kind}")
    return manifest
