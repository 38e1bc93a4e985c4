"""What the world will say: a model that learnt it from rollouts.

The model has the policy's architecture and is trained as the policy is
(:func:`agentprm_core.improve.sft.train_sft`), with the loss on the observations instead of the actions. It decodes as
the policy does, too, with the roles exchanged: actions are what it reads, observations what it writes. A world that is
over says nothing: a won episode is trained on with an empty observation at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentprm_core.improve.sft import SftSettings, train_sft
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.prompt import ACT, Renderer
from agentprm_core.policy.sampler import Sampler
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Imagined:
    """What came of an action."""

    text: str
    won: bool


class WorldModel(Protocol):
    """Follows conversations as a player does, and says what would come of an action."""

    def open(self, seed: int) -> int:
        """A seat for a new conversation; ``seed`` is its player's."""
        ...

    def fork(self, seat: int) -> int:
        """A second seat with the same past."""
        ...

    def see(self, seat: int, observation: str) -> None:
        """What the world said."""
        ...

    def tell(self, seat: int, action: str) -> None:
        """What was played."""
        ...

    def imagine(self, asked: Sequence[tuple[int, str]]) -> list[Imagined | None]:
        """For each (seat, action) what comes of it, which is then the seat's past; None where there is no room."""
        ...

    def close(self, seat: int) -> int:
        """Give the seat back; returns the tokens read for it."""
        ...


class LearntModel:
    """A trained world model, in up to ``slots`` conversations of ``context`` tokens; the likeliest observation."""

    def __init__(self, world: Checkpoint, *, slots: int, context: int, max_observation_tokens: int) -> None:
        """Raises ValueError for the ``chat`` format."""
        self._sampler = Sampler(
            replace(world, renderer=exchanged(world.renderer)),
            slots=slots,
            context=context,
            temperature=0.0,
            constrained=False,
            max_action_tokens=max_observation_tokens,
        )
        self._first: dict[int, str | None] = {}
        """The first observation, until an action follows it."""
        self._full: set[int] = set()

    def open(self, seed: int) -> int:
        seat = self._sampler.open(seed)
        self._first[seat] = ""
        return seat

    def fork(self, seat: int) -> int:
        silent = self._first[seat] is not None  # so far: there is no past to share
        twin = self._sampler.open(0) if silent else self._sampler.fork(seat, 0)
        self._first[twin] = self._first[seat]
        if seat in self._full:
            self._full.add(twin)
        return twin

    def see(self, seat: int, observation: str) -> None:
        if self._first[seat] is not None:
            self._first[seat] = observation
        elif seat not in self._full:
            self._sampler.tell(seat, observation)

    def tell(self, seat: int, action: str) -> None:
        first, self._first[seat] = self._first[seat], None
        said = action if first is None else f"{first}{ACT}{action}"
        if seat not in self._full and not self._sampler.see(seat, said, ()):
            self._full.add(seat)

    def imagine(self, asked: Sequence[tuple[int, str]]) -> list[Imagined | None]:
        for seat, action in asked:
            self.tell(seat, action)
        waiting = [seat for seat, _ in asked if seat not in self._full]
        for seat in waiting:
            self._sampler.ask(seat)
        said: dict[int, str] = {}
        while len(said) < len(waiting):
            for seat, (decision,) in self._sampler.tick():
                said[seat] = decision.action
                self._sampler.tell(seat, decision.action)
        return [Imagined(said[seat], not said[seat]) if seat in said else None for seat, _ in asked]

    def close(self, seat: int) -> int:
        del self._first[seat]
        self._full.discard(seat)
        return self._sampler.close(seat).policy_read


def exchanged(renderer: Renderer) -> Renderer:
    """The renderer of who writes what the world says, for the same tokens in the same order."""
    if renderer.format != "plain":
        raise ValueError("a world model needs the plain format: a policy that was trained here from scratch")
    return replace(renderer, before_action=renderer.after_action, after_action=renderer.before_action)


def train_world_model(
    episodes: Iterable[Episode], renderer: Renderer, model: PreTrainedModel, settings: SftSettings, scratch: Path
) -> tuple[PreTrainedModel, dict]:
    """Train ``model`` (a policy's, or a new one) in place to say what the world says.

    As :func:`agentprm_core.improve.sft.train_sft`, whose ``observation_loss`` and ``observation_accuracy`` are of the
    tokens; all losses but the observations' are off.
    """
    context = model.config.max_position_embeddings
    closed = (with_end(episode, renderer, context) for episode in episodes)
    return train_sft(closed, renderer, model, replace(settings, action_weight=0.0, observation_weight=1.0), scratch)


def with_end(episode: Episode, renderer: Renderer, context: int) -> Episode:
    """A won episode with the silence after it, where the context has room; another as it is. What is said to have been
    done then is never learnt."""
    longer = replace(episode, turns=(*episode.turns, episode.turns[-1]._replace(observation="")))
    fits = len(renderer.episode(longer.turns).input_ids) <= context
    return longer if episode.won and fits else episode


def observation_accuracy(model: LearntModel, renderer: Renderer, episodes: Sequence[Episode]) -> dict:
    """How often a whole observation is imagined as it was, word for word, after the true history.

    Needs two seats an episode. Returns ``observations`` (compared), ``exact`` (share), ``wins`` (winning actions) and
    ``wins_known`` (share of them after which the model says that all is over), ``false_wins`` (share of the others).
    """
    seats = [model.open(0) for _ in episodes]
    exact, known, false = [], [], []
    for t in range(max(episode.length for episode in episodes)):
        here = [(seat, episode) for seat, episode in zip(seats, episodes) if t < episode.length]
        for seat, episode in here:
            model.see(seat, episode.turns[t].observation)
        asked = [(model.fork(seat), episode.turns[t].action) for seat, episode in here]
        for (fork, _), imagined, (_, episode) in zip(asked, model.imagine(asked), here):
            model.close(fork)
            won = episode.won and t == episode.length - 1
            if imagined is not None and won:
                known.append(imagined.won)
            elif imagined is not None and t + 1 < episode.length:
                truth = renderer.observation(episode.turns[t + 1].observation, False)
                exact.append(renderer.observation(imagined.text, False) == truth)
                false.append(imagined.won)
        for seat, episode in here:
            model.tell(seat, episode.turns[t].action)
    for seat in seats:
        model.close(seat)
    return {
        "observations": len(exact),
        "exact": sum(exact) / len(exact) if exact else None,
        "wins": len(known),
        "wins_known": sum(known) / len(known) if known else None,
        "false_wins": sum(false) / len(false) if false else None,
    }
