"""Bytes that training and playing take.

Training, of P parameters of which T are trained and N tokens a pass:

    weights 4P,  gradients 4T,  AdamW 8T (Muon 4T),  reference 4T (online DPO),
    activations N · L · (w W + i I + d H D) + N · (12 W + 12 s V)

with w, i, d from :data:`KEPT`: the bytes that autograd keeps of a token in a layer, counted with
``torch.autograd.graph.saved_tensors_hooks`` on the packed loop. s is the share of tokens that the loss is read at.
Under autocast the bfloat16 copies of all matrices are kept for the backward pass too (2 bytes a parameter). With
gradient checkpointing a layer keeps its input (4 W), and one layer at a time keeps all.

On a CPU blocks below 32 MiB come from glibc's heap, which keeps freed ones in between: :data:`HEAP` times as much.

Playing: the weights, a key-value cache of ``slots`` conversations, and what one pass of the layers needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentprm_core.errors import DataError
from agentprm_core.planning.shapes import ModelShape

KEPT = {
    ("float32", True): (24, 16, 20),
    ("float32", False): (16, 16, 20),
    ("bfloat16", True): (26, 8, 10),
    ("bfloat16", False): (18, 8, 10),
}
"""(precision, whether all weights are trained) → bytes that a token's activations take in a layer, for each unit of W,
of I and of H·D. With LoRA the inputs of the norms' weights are not kept."""
OUTSIDE = 12
"""Bytes a token for each unit of W outside of the layers, and for each token of the vocabulary where the loss is read:
logits, their normalised copy and their gradient in float32."""
HEAP = 1.4
"""Bytes that the process grows by for a byte of activations in blocks of less than :data:`BLOCK`, on a CPU: measured at
four sizes, 1.35 to 1.41. It is 1.0 where MALLOC_MMAP_THRESHOLD_ is set."""
BLOCK = 32 * 2**20
"""glibc's largest threshold above which a block is given back by itself (DEFAULT_MMAP_THRESHOLD_MAX)."""
PROCESS = {"cpu": 0.6 * 2**30, "cuda": 1.0 * 2**30}
"""Libraries, and on a GPU CUDA's context and what its allocator leaves unused."""
PASS_TOKENS = 8192
"""Tokens that players read in one call, about."""


@dataclass(frozen=True)
class Memory:
    """Bytes, by what they are for."""

    weights: float = 0.0
    states: float = 0.0
    """Gradients, the optimizer's state, the reference's weights."""
    activations: float = 0.0
    cache: float = 0.0
    process: float = 0.0

    @property
    def total(self) -> float:
        return self.weights + self.states + self.activations + self.cache + self.process


@dataclass(frozen=True)
class Training:
    """How a model is trained."""

    precision: str
    optimizer: str
    pass_tokens: int
    rank: int = 0
    """Of LoRA; 0: all weights are trained."""
    modules: tuple[str, ...] = ()
    checkpointing: bool = False
    shards: int = 1
    """Processes that share weights, gradients and the optimizer's state."""


def trained_parameters(shape: ModelShape, how: Training) -> int:
    """T."""
    return shape.adapter(how.rank, how.modules) if how.rank else shape.parameters


def training_memory(
    shape: ModelShape, how: Training, *, share: float, device: str, headless: bool = False, reference: bool = False
) -> Memory:
    """Of one process. ``share``: of the tokens that the loss is read at. ``headless``: a PRM, which has one score in
    place of the vocabulary. ``reference``: a second set of the trained weights is kept."""
    trained = trained_parameters(shape, how)
    optimizer = 8 * trained if how.optimizer == "adamw" else 4 * shape.matrices + 8 * (trained - shape.matrices)
    states = 4 * trained + optimizer + 4 * trained * reference
    return Memory(
        weights=4 * (shape.parameters + trained * bool(how.rank)) / how.shards,
        states=states / how.shards,
        activations=_activations(shape, how, 0.0 if headless else share, device),
        process=PROCESS[device],
    )


def _activations(shape: ModelShape, how: Training, share: float, device: str) -> float:
    def block(units: float) -> float:
        """Bytes a token for each byte of activations of so many numbers a token."""
        each = 2 if how.precision == "bfloat16" else 4
        return HEAP if device == "cpu" and how.pass_tokens * units * each < BLOCK else 1.0

    kept, units = KEPT[how.precision, not how.rank], (shape.width, shape.inner, shape.heads * shape.head)
    layer = sum(bytes_ * unit * block(unit) for bytes_, unit in zip(kept, units))
    layer += 4 * how.rank * len(how.modules)
    copies = 2 * shape.matrices if how.precision == "bfloat16" else 0
    read = share * shape.vocabulary
    outside = OUTSIDE * (shape.width * block(shape.width) + read * block(read))
    if how.checkpointing:
        inputs = 4 * shape.layers * shape.width * block(shape.width)
        return how.pass_tokens * (inputs + layer + outside) + copies / shape.layers
    return how.pass_tokens * (shape.layers * layer + outside) + copies


def slot_bytes(shape: ModelShape, context: int, bytes_each: int) -> int:
    """The key-value cache of one conversation of ``context`` tokens."""
    return shape.layers * context * 2 * shape.kv_heads * shape.head * bytes_each


def playing_memory(
    shape: ModelShape, *, models: int, slots: int, context: int, cache_mb: float, bytes_each: int, device: str
) -> Memory:
    """Of ``models`` models with a cache each, which share ``cache_mb``. ``slots``: at most, fewer where that is full.

    Raises DataError where not one slot fits.
    """
    one = slot_bytes(shape, context, bytes_each)
    fitting = min(slots, int(cache_mb * 2**20 / models // one))
    if fitting < 1:
        raise DataError(
            f"compute.cache_mb: {cache_mb} holds not one conversation of {context} tokens for {models} models: "
            f"at least {-(-models * one // 2**20)}"
        )
    layer = 2 * shape.inner + 6 * shape.width + 3 * shape.heads * shape.head
    return Memory(
        weights=models * bytes_each * shape.parameters,
        activations=PASS_TOKENS * layer * bytes_each + 8 * fitting * shape.vocabulary,
        cache=models * fitting * one,
        process=PROCESS[device],
    )
