"""An episode as one growing sequence of tokens: the only place where text becomes a prompt.

``observation(o_0) + action(a_0) + observation(o_1) + action(a_1) + …`` is the whole rendering, so the tokens of turns
0…t are a prefix of those of turns 0…t+1 by construction. Samplers keep their key-value cache from turn to turn because
of it, and training reads a whole episode in one pass.

Two formats. ``plain`` is for models trained here from scratch: the bare text, an ``<act>`` mark where the policy is to
write, an ``<end>`` mark where it stops. ``chat`` is for published models: user and assistant messages in the
tokenizer's own chat template, the admissible commands listed, the reply as ``REASON:`` and ``ACTION:`` (paper A).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast

from agentprm_core.errors import DataError
from agentprm_core.types import NO_PROMPT, Prompt, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PAD, UNK, BOS, ACT, END = "<pad>", "<unk>", "<bos>", "<act>", "<end>"

_FORM = "At every turn reply with\nREASON:\n<why>\nACTION:\n<one command>\n\n"
_STEERING = (
    "Before you act, think of a strategy for this task and of a hypothesis about what you cannot see yet. Try the "
    "places and commands that you would usually pass over.\n\n"
)
_HINDSIGHT = (
    "\n\nThe right command here is: {action}\nReply with the reason for it in one sentence, as somebody who has yet to "
    "think of the command."
)
_ACTION = re.compile(r"ACTION:\s*(.+?)\s*$", re.DOTALL)
_REASON = re.compile(r"REASON:\s*(.*?)\s*(?:ACTION:|$)", re.DOTALL)


@dataclass(frozen=True)
class Rendered:
    """One episode's tokens. ``T`` turns, ``L`` tokens."""

    input_ids: list[int]
    """L token ids."""
    is_action: list[bool]
    """L flags: written by the policy (the end mark included)."""
    action_starts: list[int]
    """T positions: the first token of each action."""
    action_ends: list[int]
    """T positions: the last token of each action, where the PRM's score is read."""


@dataclass(frozen=True)
class Renderer:
    """Turns text into tokens for one tokenizer. Build it with :func:`make_renderer`."""

    tokenizer: PreTrainedTokenizerBase
    format: str
    opening: tuple[int, ...]
    """Tokens before the first observation."""
    before_observation: tuple[int, ...]
    """Tokens before every later observation."""
    before_action: tuple[int, ...]
    """Tokens between an observation and the action."""
    after_action: tuple[int, ...]
    """Tokens that end an action. The first of them is the stop token."""
    prompt: Prompt = NO_PROMPT
    """What the messages of the ``chat`` format say beside the observations: the world's (``WorldSpec.prompt``)."""
    steering: bool = False
    """Whether the first message also asks to explore: for playing only (:meth:`steered`)."""
    _encode: Callable[[str], tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # worlds say the same few thousand sentences over and over
        object.__setattr__(self, "_encode", lru_cache(maxsize=200_000)(_encoder(self.tokenizer)))

    def __reduce__(self) -> tuple:
        # to another process; the sentences that this one remembers stay
        return Renderer, tuple(getattr(self, part.name) for part in fields(self) if part.init)

    @property
    def stop_token(self) -> int:
        return self.after_action[0]

    def steered(self) -> Renderer:
        """The same with a steering prompt (paper A): it asks for a strategy and a hypothesis of where things are. What
        is played under it is scored and trained on under the normal prompt, which has the exploration learnt.

        Raises ValueError for the ``plain`` format: its policies read no instructions.
        """
        if self.format != "chat":
            raise ValueError(
                "a steering prompt needs a policy that reads instructions: a tokenizer with a chat template"
            )
        return replace(self, steering=True)

    def observation(self, text: str, first: bool, admissible: Sequence[str] = ()) -> tuple[int, ...]:
        """Tokens of one observation, up to and with the mark after which the policy writes."""
        if self.format == "chat":
            text = chat_message(text, first, admissible, self.prompt, self.steering)
        return (self.opening if first else self.before_observation) + self._encode(text) + self.before_action

    def action(self, action: str, reason: str = "") -> tuple[int, ...]:
        """Tokens of one action and its end."""
        return self.action_text(action, reason) + self.after_action

    def action_text(self, action: str, reason: str = "") -> tuple[int, ...]:
        """Tokens of one action without its end."""
        return self._encode(chat_reply(action, reason) if self.format == "chat" else action)

    def words(self, text: str) -> tuple[int, ...]:
        """Tokens of words within an action."""
        return self._encode(text)

    def said(self, tokens: Sequence[int]) -> str:
        """The words of tokens within an action."""
        return self._decode(tokens)

    @cached_property
    def marks(self) -> frozenset[int]:
        """Tokens that are no words: those of the format and of the tokenizer."""
        added = self.tokenizer.added_tokens_decoder
        return frozenset(self.tokenizer.all_special_ids) | {token for token, what in added.items() if what.special}

    def parse(self, tokens: Sequence[int]) -> tuple[str, str]:
        """(reason, action) of what the policy wrote, end mark included or not."""
        text = self._decode(tokens)
        return parse_reply(text) if self.format == "chat" else ("", text)

    def question(self, action: str) -> tuple[int, ...]:
        """Tokens that, after the text of an observation, ask why ``action`` is right, up to where the reply starts.

        The reply's first words are the policy's own. Put there for it, ``REASON:`` and a line break may be other tokens
        than those that it learnt to go on from.

        Raises ValueError for the ``plain`` format: its policies write no reasons.
        """
        if self.format != "chat":
            raise ValueError("a reason needs a policy that writes reasons: a tokenizer with a chat template")
        return self._encode(hindsight(action)) + self.before_action

    def reason(self, tokens: Sequence[int]) -> str:
        """What the policy answered to :meth:`question`, on one line, without ``REASON:`` where it says that."""
        text = self._decode(tokens).partition("ACTION:")[0]
        named = _REASON.search(text)
        return " ".join((named.group(1) if named else text).split())

    def names_an_action(self, tokens: Sequence[int]) -> bool:
        """Whether what the policy writes has come to its action."""
        return "ACTION:" in self._decode(tokens)

    def episode(self, turns: Sequence[Turn]) -> Rendered:
        """The whole episode, ending with the last action's end mark."""
        ids: list[int] = []
        starts, ends, is_action = [], [], []
        for t, turn in enumerate(turns):
            seen = self.observation(turn.observation, t == 0, turn.admissible)
            done = self.action(turn.action, turn.reason)
            starts.append(len(ids) + len(seen))
            ids += seen + done
            # the score and the loss end at the stop token: what a template puts after it belongs to nobody
            ends.append(len(ids) - len(self.after_action))
            is_action += [False] * len(seen)
            is_action += [True] * (len(done) - len(self.after_action) + 1) + [False] * (len(self.after_action) - 1)
        return Rendered(ids, is_action, starts, ends)

    def _decode(self, tokens: Sequence[int]) -> str:
        text = self.tokenizer.decode([t for t in tokens if t != self.stop_token], skip_special_tokens=True)
        return text.strip()  # pyright: ignore[reportAttributeAccessIssue]: one text of one sequence


def _encoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], tuple[int, ...]]:
    """Text → its tokens, with no marks around them."""
    if not tokenizer.is_fast:
        return lambda text: tuple(tokenizer.encode(text, add_special_tokens=False))
    backend = cast(Any, tokenizer).backend_tokenizer

    def encode(text: str) -> tuple[int, ...]:
        # what ``tokenizer.encode`` does, in a fifth of its time for a command
        backend.no_truncation()
        backend.no_padding()
        return tuple(backend.encode(text, add_special_tokens=False).ids)

    return encode


def chat_message(
    observation: str, first: bool, admissible: Sequence[str], prompt: Prompt, steering: bool = False
) -> str:
    """What the user says at a turn, in the ``chat`` format. Without admissible commands any text is one."""
    opening = f"{prompt.instruction} {_FORM}".lstrip() + _STEERING * steering if first else ""
    lists = admissible and prompt.lists_commands
    listed = "\n\nAdmissible commands:\n" + "\n".join(admissible) if lists else ""
    return f"{opening}{observation}{listed}"


def hindsight(action: str) -> str:
    """What the user adds to a message to be told the reason for ``action``, in the ``chat`` format."""
    return _HINDSIGHT.format(action=action)


def chat_reply(action: str, reason: str) -> str:
    """What the assistant says at a turn, in the ``chat`` format."""
    return f"REASON:\n{reason}\nACTION:\n{action}"


def parse_reply(text: str) -> tuple[str, str]:
    """(reason, action) of what the assistant said; all of it is the action where it does not name one."""
    action, reason = _ACTION.search(text), _REASON.search(text)
    return (reason.group(1) if reason else ""), (action.group(1).splitlines()[0] if action else text)


def make_renderer(tokenizer: PreTrainedTokenizerBase, prompt: Prompt = NO_PROMPT) -> Renderer:
    """The renderer of ``tokenizer``: ``plain`` if it has our marks, ``chat`` if it has a chat template. ``prompt``: the
    world's, for the latter.

    Raises:
        DataError: it has neither, so nobody can tell where an action starts.
    """
    marks = cast(list[int], tokenizer.convert_tokens_to_ids([BOS, ACT, END]))
    if all(m is not None and m != tokenizer.unk_token_id for m in marks):
        bos, act, end = marks
        return Renderer(tokenizer, "plain", (bos,), (), (act,), (end,))
    if not tokenizer.chat_template:
        raise DataError(
            f"tokenizer {tokenizer.name_or_path!r} has neither the marks {BOS} {ACT} {END} nor a chat template; take "
            "the model's instruction-tuned version"
        )
    return _chat_renderer(tokenizer, prompt)


def _chat_renderer(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> Renderer:
    """Take the template apart by rendering a dialogue of four sentinels and cutting at them."""
    sentinels = ["@@first@@", "@@reply@@", "@@second@@", "@@answer@@"]
    roles = ["user", "assistant", "user", "assistant"]
    messages = [{"role": r, "content": s} for r, s in zip(roles, sentinels)]
    text = cast(str, tokenizer.apply_chat_template(messages, tokenize=False))
    try:
        opening, rest = text.split(sentinels[0])
        before_action, rest = rest.split(sentinels[1])
        between, rest = rest.split(sentinels[2])
        again, _ = rest.split(sentinels[3])
    except ValueError:
        raise DataError(
            f"the chat template of {tokenizer.name_or_path!r} rewrites messages: cannot append to it; "
            "choose another model.source"
        ) from None
    if again != before_action:
        raise DataError(
            f"the chat template of {tokenizer.name_or_path!r} renders turns unlike each other; "
            "choose another model.source"
        )
    between_ids = tokenizer.encode(between, add_special_tokens=False)
    # the assistant's message ends with the first special token (<|eot_id|>, <|im_end|>, </s>) after its text
    cut = 1 + next(i for i, t in enumerate(between_ids) if t in tokenizer.all_special_ids)

    def ids(piece: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(piece, add_special_tokens=False))

    return Renderer(
        tokenizer,
        "chat",
        ids(opening),
        tuple(between_ids[cut:]),
        ids(before_action),
        tuple(between_ids[:cut]),
        prompt,
    )
