"""Which of its own episodes a policy imitates: those that were won (rejection-sampling fine-tuning, RFT), or, where no
outcome may be read, those that end as demonstrations do, or those that ended early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from agentprm_core.errors import DataError
from agentprm_core.policy.prompt import Renderer
from agentprm_core.prm.score import score_episodes
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MISSED = 0.05
"""Share of the demonstrations that would not be taken for one by their end."""


def successes(episodes: Iterable[Episode]) -> list[Episode]:
    """The won episodes, the first of those that did the same in the same game. Raises DataError where none was won."""
    offered = list(episodes)
    won = [episode for episode in offered if episode.won]
    if not won:
        raise DataError(
            f"none of the {len(offered)} episodes was won: nothing to imitate; play more of them (rollout.games, "
            "rollout.episodes_per_game)"
        )
    return _distinct(won)


def of_undecided_games(episodes: Iterable[Episode]) -> list[Episode]:
    """The episodes of the games that were both won and lost. Raises DataError where there is none."""
    offered = list(episodes)
    won = {episode.game_id for episode in offered if episode.won}
    lost = {episode.game_id for episode in offered if not episode.won}
    kept = [episode for episode in offered if episode.game_id in won & lost]
    if not kept:
        raise DataError(
            f"each of the {len(won | lost)} games was won always or never: nothing to imitate; play more episodes of "
            "each (rollout.episodes_per_game), or set method.keeps to won"
        )
    return kept


def expert_like(
    episodes: Sequence[Episode],
    demonstrations: Sequence[Episode],
    prm: PreTrainedModel,
    renderer: Renderer,
    batch_tokens: int,
) -> list[Episode]:
    """Episodes whose last action scores at least what all but :data:`MISSED` of the demonstrations' last ones do, the
    first of those that did the same in the same game. Their outcomes are not read.

    For InversePRM: Q(s,a) at a last turn is how much it is the expert's and not the learner's (paper A). Of whole
    demonstrations that is the turn that wins; of those that are cut (:mod:`agentprm_core.credit.cutting`) it is any.

    Raises DataError where there is none.
    """
    ends, of_experts = (
        np.array([scores[-1] for scores in score_episodes(prm, renderer, some, batch_tokens)])
        for some in (episodes, demonstrations)
    )
    floor = np.quantile(of_experts, MISSED)
    kept = [episode for episode, end in zip(episodes, ends) if end >= floor]
    if not kept:
        raise DataError(
            f"none of the {len(episodes)} episodes ends as demonstrations do (a score of {floor:.3g}, the highest is "
            f"{ends.max(initial=0):.3g}): nothing to imitate; set method.name to online_dpo"
        )
    return _distinct(kept)


def ended_early(episodes: Sequence[Episode], most_turns: Mapping[str, int]) -> list[Episode]:
    """Episodes that ended before they had all the actions of ``most_turns`` ({game: actions}), the first of those that
    did the same in the same game. Neither an outcome nor a PRM is read: the control of what :func:`expert_like` keeps,
    in a world that ends an episode when it is won. A world that ends lost episodes too, or a context that is full, ends
    others early.

    Raises DataError where there is none.
    """
    kept = [episode for episode in episodes if episode.length < most_turns[episode.game_id]]
    if not kept:
        raise DataError(f"none of the {len(episodes)} episodes ended before its last action: nothing to imitate")
    return _distinct(kept)


def _distinct(episodes: Iterable[Episode]) -> list[Episode]:
    distinct: dict[tuple, Episode] = {}
    for episode in episodes:
        distinct.setdefault((episode.game_id, tuple(turn.action for turn in episode.turns)), episode)
    return list(distinct.values())
