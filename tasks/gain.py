"""Whether a PRM's choices win games: ``prm.require_gain`` asks it before a policy follows the PRM.

The policy that the PRM was trained on plays games held out from the PRM twice, with the same seeds: one sample a turn,
and the PRM's best of four, chosen as in evaluations (``prm.gain_prior``). An update follows the PRM's choices among the
policy's own samples; where these win no more than chance explains (McNemar's exact test), nothing says that there is
anything to follow. The ranking (``prm.require_ranking``) costs no plays and says less: it counts pairs of actions at
branched states, and is silent about the states that choosing leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from agentprm_core.credit.split import validation_games
from agentprm_core.datasets import games_from_table, read_table
from agentprm_core.evaluate import Paired, paired_test
from agentprm_core.policy.models import Checkpoint
from agentprm_core.types import GAMES, Episode, Game
from tasks.demos import choose
from tasks.frame import layout
from tasks.frame.compute import load_player
from tasks.frame.stage import Stage, StageError
from tasks.playing import play_games, way_of_rollouts

SAMPLES = 4
"""N of Best-of-N."""
LEVEL = 0.05
"""The p-value that a gain must stay below."""


def required_gain(stage: Stage, episodes: Sequence[Episode], policy: Checkpoint) -> dict:
    """The figures of the test on held-out games of these rollouts: those of :class:`agentprm_core.evaluate.Paired`.

    Raises:
        StageError: the PRM gains nothing; MLflow has the figures all the same.
    """
    prm = load_player(layout.prm(stage.iteration), stage.params.compute, "prm")
    with stage.clock.lap("gain"):
        found = gain(stage, policy, prm, held_out(stage, episodes))
    print(f"{stage.name}: {said(found)}", flush=True)
    if found.difference <= 0 or found.p_value >= LEVEL:
        with stage.tracking():
            stage.tracker.log_metrics({stage.task: {"gain": asdict(found)}})
        raise StageError(
            f"{layout.prm(stage.iteration)} does not make its policy win more: {said(found)}; needed is a gain at "
            f"p < {LEVEL}. Give it more to learn from (rollout.games, rollout.episodes_per_game, "
            "rollout.branch.train_states), play more games (prm.gain_games, which label.validation_share bounds), or "
            "set prm.require_gain: false"
        )
    return asdict(found)


def held_out(stage: Stage, episodes: Sequence[Episode]) -> list[Game]:
    """``prm.gain_games`` of the games that were played and are for validation, or all where they are fewer."""
    ids = sorted({episode.game_id for episode in episodes})
    sides = validation_games(ids, stage.params.label.validation_share, stage.params.seed)
    wanted = {game_id for game_id, validation in zip(ids, sides) if validation}
    games = [game for game in games_from_table(read_table(layout.games("train"), GAMES)) if game.id in wanted]
    return choose(games, min(stage.params.prm.gain_games, len(games)), stage.seed)


def gain(stage: Stage, policy: Checkpoint, prm: Checkpoint, games: Sequence[Game]) -> Paired:
    """The policy sampled, against the PRM's choice among its samples, game by game."""
    section = stage.params.prm
    one = way_of_rollouts(
        stage, policy, method="sample", temperature=stage.params.rollout.temperature, n=1, prior=section.gain_prior
    )
    before, after = (
        {episode.game_id: episode.won for episode in play_games(policy, prm, games, way, stage.seed)}
        for way in (one, replace(one, method="best_of_n", n=SAMPLES))
    )
    return paired_test(before, after)


def said(found: Paired) -> str:
    """The figures in a sentence."""
    return (
        f"of {found.games} held-out games Best-of-{SAMPLES} under it won {found.gained} that one sample lost, and lost "
        f"{found.lost} that it won ({100 * found.difference:+.1f} points, p = {found.p_value:.3f})"
    )
