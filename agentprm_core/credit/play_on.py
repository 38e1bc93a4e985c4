"""Branching rollouts by the rollout loop: a :class:`~agentprm_core.credit.branching.PlayFrom` of any player."""

from __future__ import annotations

from collections.abc import Sequence

from agentprm_core.credit.branching import History, PlayFrom
from agentprm_core.errors import DataError
from agentprm_core.rollout import Player, Start, play
from agentprm_core.types import Episode


def play_from_player(player: Player, *, world_name: str, max_turns: int) -> PlayFrom:
    """Plays on from histories with ``player``, up to ``max_turns`` actions an episode, replayed ones included.

    Raises (when called) DataError for a history longer than ``max_turns`` or than the player's context.

    The rollout loop reaches each state by replaying the history's actions in a fresh world: the player has to read them
    anyway.
    """

    def play_from(histories: Sequence[History], seeds: Sequence[int]) -> list[tuple[float, int]]:
        starts = [
            Start(
                history.game,
                i,
                seed,
                actions=tuple(turn.action for turn in history.turns),
                reasons=tuple(turn.reason for turn in history.turns),
            )
            for i, (history, seed) in enumerate(zip(histories, seeds))
        ]
        answers: dict[int, tuple[float, int]] = {}
        for episode in play(player, starts, world_name=world_name, max_turns=max_turns):
            answers[episode.index] = (episode.reward, _turns_after(histories[episode.index], episode))
        return [answers[i] for i in range(len(starts))]

    return play_from


def _turns_after(history: History, episode: Episode) -> int:
    if episode.length < len(history.turns):
        raise DataError(
            f"branching: game {history.game.id}: {len(history.turns)} turns of history, of which the player took in "
            f"{episode.length}; its context and turn limit must be those of the episodes (model.context, "
            "env.max_turns)"
        )
    return episode.length - len(history.turns)
