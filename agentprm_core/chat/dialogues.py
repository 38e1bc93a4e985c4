"""Dialogues between a user and an assistant who plays the worlds: what a chat model is made from.

Experts' episodes are told as chat. The user says what the world shows
(:func:`agentprm_core.policy.prompt.chat_message`) and the assistant replies with a reason and a command (paper A's
form). The reason follows by a rule from the task and the command (:func:`reason_for`), since experts give none. Some
dialogues have an instruction that changes what is asked, so the model learns to read instructions too:

- ``play``: the episode as it is, without a system message. That is what the pipeline sends.
- ``action_only``: the system message asks for the command without a reason.
- ``forbidden``: the system message forbids a command, which is the expert's next. The reply is the listed command after
  it, or the first one where it is the last. Where a world lists none, the episode is told as it is.
- ``hindsight``: the user tells the right command and asks for its reason (post-hoc rationalisation, paper A).
- ``steered``: the first message asks for a strategy and a hypothesis, and the replies try commands at random as well.
- ``recall``: the user asks for the task again.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentprm_core.errors import DataError
from agentprm_core.policy.prompt import chat_message, chat_reply, hindsight
from agentprm_core.seeding import episode_seed
from agentprm_core.types import Episode, Game, Prompt
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.base import NoGenerator, listed_commands
from agentprm_core.worlds.demonstrations import demonstrate
from agentprm_core.worlds.game_sources import generated_by

WORLDS = ("alfworld", "babyai", "textcraft", "arithmetic")
"""Those that have an expert and short texts."""
ACTION_ONLY = "Answer with the command only, without a reason."
FORBIDDEN = "Do not use the command: {command}"
RECALL = "Say what your task is."
WANDERING = 0.4
"""Share of random commands in steered dialogues."""
SHARES = {"play": 0.6, "action_only": 0.12, "forbidden": 0.1, "hindsight": 0.1, "steered": 0.04, "recall": 0.04}
"""Of the dialogues, by kind."""
_SEARCHING = ("go", "move", "turn", "toggle", "open", "examine", "look", "check", "inventory", "help")
_WORD = re.compile(r"[a-z]{3,}|\d+")
_COMMON = frozenset(
    ("the", "and", "task", "your", "that", "with", "from", "under", "some", "two", "say", "how", "many", "has", "now")
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a dialogue."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str
    taught: bool = False
    """Whether the model learns to say it."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Messages in order; the last one is the assistant's."""

    world: str
    kind: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Speakers:
    """Whose episodes are told."""

    expert: str | None = None
    """The name of another expert than a world's first one."""
    knowledge: float = 1.0
    """Of the experts, in [0, 1]: how well they know where things usually are, or what does not matter."""
    lost: bool = False
    """Whether an episode that the expert lost is told too. A model of such dialogues knows mistakes as well."""


def make_dialogues(worlds: Sequence[str], count: int, seed: int, speakers: Speakers = Speakers()) -> list[Dialogue]:
    """Dialogues of ``count`` training games, the worlds in turn, the kinds drawn by :data:`SHARES`. A world that is
    named twice has twice as many. A game that the expert does not win makes none, but where it wandered, or with
    ``speakers.lost``. The games are drawn apart from those of a campaign with the same seed.

    Raises:
        DataError: a world that does not exist, that has no expert, or not that one, or that generates no games.
    """
    rounds, shares = -(-count // len(worlds)), Counter(worlds)
    found = {}
    for number, name in enumerate(shares):
        draws = random.Random(f"{seed}/{number}")
        found[name] = [_tell(name, game, draws, speakers) for game in _games(name, rounds * shares[name], seed)]
    columns = [found[name][worlds[:place].count(name) :: shares[name]] for place, name in enumerate(worlds)]
    return [dialogue for together in zip(*columns) for dialogue in together if dialogue.messages][:count]


def reason_for(goal: str, action: str) -> str:
    """One sentence on why ``action`` serves ``goal``, by the words that they share."""
    asked = set(_WORD.findall(goal.lower())) - _COMMON
    named = list(dict.fromkeys(word for word in _WORD.findall(action.lower()) if word in asked))
    if named:
        return f"The task names {' '.join(named)}."
    if action.split(maxsplit=1)[0] in _SEARCHING:
        return "What the task names is not here yet."
    return "This leads to what the task names."


def _games(name: str, count: int, seed: int) -> list[Game]:
    spec = world_spec(name)
    if spec.expert is None:
        raise DataError(f"{name}: it has no expert, so there is nobody to make dialogues of: name another world")
    try:
        # by a seed of their own: a campaign of the same seed would else train on games that the model was made of
        games = generated_by(spec, count, episode_seed(seed, "dialogues"), "train")
    except NoGenerator:
        raise DataError(f"{name}: it generates no games to make dialogues of: name another world") from None
    order = random.Random(seed).sample(range(len(games)), len(games))
    return [games[number] for number in order]


def _tell(world: str, game: Game, draws: random.Random, speakers: Speakers) -> Dialogue:
    spec = world_spec(world)
    kind = draws.choices(list(SHARES), list(SHARES.values()))[0]
    wandering = WANDERING if kind == "steered" else 0.0
    episode = demonstrate(
        spec.make(),
        game,
        world_name=world,
        max_turns=spec.expert_turns,
        seed=draws.getrandbits(62),
        knowledge=speakers.knowledge,
        corrupt=wandering,
        expert=speakers.expert,
    )
    told_too = episode.won or wandering or speakers.lost
    messages = _KINDS[kind](episode, game.goal, spec.prompt, draws) if told_too else ()
    return Dialogue(spec.name, kind, messages)


def told(episode: Episode, goal: str, prompt: Prompt, steering: bool = False) -> list[Message]:
    """The episode as user and assistant say it, with a reason for each command."""
    messages = []
    for number, turn in enumerate(episode.turns):
        asked = chat_message(turn.observation, number == 0, turn.admissible, prompt, steering)
        reply = chat_reply(turn.action, turn.reason or reason_for(goal, turn.action))
        messages += [Message("user", asked), Message("assistant", reply, taught=True)]
    return messages


def _play(episode: Episode, goal: str, prompt: Prompt, draws: random.Random) -> tuple[Message, ...]:
    return tuple(told(episode, goal, prompt))


def _action_only(episode: Episode, goal: str, prompt: Prompt, draws: random.Random) -> tuple[Message, ...]:
    messages = [Message("system", ACTION_ONLY)]
    for asked, turn in zip(told(episode, goal, prompt)[::2], episode.turns):
        messages += [asked, Message("assistant", f"ACTION:\n{turn.action}", taught=True)]
    return tuple(messages)


def _forbidden(episode: Episode, goal: str, prompt: Prompt, draws: random.Random) -> tuple[Message, ...]:
    last = draws.randrange(episode.length)
    turn, before = episode.turns[last], _untaught(told(episode, goal, prompt)[: 2 * last + 1])
    listed = listed_commands(turn.admissible) if prompt.lists_commands else []
    if turn.action not in listed or len(listed) < 2:
        return _play(episode, goal, prompt, draws)
    instead = listed[(listed.index(turn.action) + 1) % len(listed)]
    rule = Message("system", FORBIDDEN.format(command=turn.action))
    reply = chat_reply(instead, "The first choice is forbidden.")
    return (rule, *before, Message("assistant", reply, taught=True))


def _hindsight(episode: Episode, goal: str, prompt: Prompt, draws: random.Random) -> tuple[Message, ...]:
    last = draws.randrange(episode.length)
    before, turn = _untaught(told(episode, goal, prompt)[: 2 * last + 1]), episode.turns[last]
    question = Message("user", before[-1].content + hindsight(turn.action))
    reply = Message("assistant", f"REASON:\n{reason_for(goal, turn.action)}", taught=True)
    return (*before[:-1], question, reply)


def _steered(episode: Episode, goal: str, prompt: Prompt, draws: random.Random) -> tuple[Message, ...]:
    return tuple(told(episode, goal, prompt, steering=True))


def _recall(episode: Episode, goal: str, prompt: Prompt, draws: random.Random) -> tuple[Message, ...]:
    last = draws.randrange(episode.length)
    before = _untaught(told(episode, goal, prompt)[: 2 * last + 2])
    return (*before, Message("user", RECALL), Message("assistant", goal, taught=True))


def _untaught(messages: Sequence[Message]) -> list[Message]:
    """What was said before the one reply that such a dialogue teaches."""
    return [Message(message.role, message.content) for message in messages]


_KINDS: dict[str, Callable[[Episode, str, Prompt, random.Random], tuple[Message, ...]]] = {
    "play": _play,
    "action_only": _action_only,
    "forbidden": _forbidden,
    "hindsight": _hindsight,
    "steered": _steered,
    "recall": _recall,
}
