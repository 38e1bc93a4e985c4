"""A PRM that has also seen where its own search goes, as DAgger (arXiv 1011.0686) does it for policies.

    python -m benchmarks.relabel --campaign . --visited-by best_of_16 --out data/relabelled --json
    python -m benchmarks.relabel --campaign . --visited-by sample --out data/resampled --json
    python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/relabelled \
        --placebo data/resampled --games data/games --split unseen

A PRM learns from the rollouts of the policy alone. A search under it goes elsewhere. Here the campaign's first policy
plays as many other training games as its rollouts had. ``--visited-by`` says how: ``best_of_16`` under the campaign's
PRM, or ``sample``, which is the control. A turn is labelled with the discounted return of the episode, whoever played
it. The policy also plays on from several actions at states of these episodes, as in the stage ``rollout``
(``rollout.branch``). A PRM is then trained anew, from the policy, on the rollouts and these episodes together.

For the critic ``monte_carlo``. The last line is one JSON object: what was played and won, how well the PRM foretells
the labels of the rollouts' held-out games, and how it orders actions there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from agentprm_core.arguments import count
from agentprm_core.credit.monte_carlo import label_monte_carlo
from agentprm_core.datasets import episodes_to_table, write_table
from agentprm_core.draws import share_of
from agentprm_core.errors import DataError
from agentprm_core.methods.base import Given
from agentprm_core.methods.critic_base import labelled_sides, save_prm, train_on_labels
from agentprm_core.plays import Branch, Plays, branches
from agentprm_core.prm.ranking import ranked
from agentprm_core.prm.rows import Labelled
from agentprm_core.search.decoding_config import decoding
from agentprm_core.search.playing import play_games
from agentprm_core.types import Episode, Game
from benchmarks.answering import answer, campaign_parser
from benchmarks.campaigns import params_of
from benchmarks.placebo_prm import check_out, in_brief, labels_of, told


def visited(params: Mapping, given: Given, way: str, games: int) -> tuple[list[Labelled], dict]:
    """Labelled episodes of ``games`` training games that the rollouts did not play, by ``way`` of playing; and what was
    played. Raises DataError where the campaign has too few games."""
    rollout, critic = params["rollout"], params["critic"]
    if rollout["games"] + games > len(given.training_games):
        raise DataError(
            f"games.train: {len(given.training_games)} games, and the rollouts took {rollout['games']}: fewer --games "
            f"than {games}, so that none is played twice"
        )
    drawn = share_of(given.training_games, games, seed=given.campaign_seed, iteration=1, backwards=True)
    played = play_games(given.policy, given.prm, drawn, given.search(decoding(way)), given.seed)
    episodes = given.scratch / "episodes.parquet"
    write_table(episodes_to_table(played, iteration=1, method=way, policy=given.policy.digest), episodes)
    tried = given.scratch / "branches.parquet"
    write_table(_tried(rollout, given, played, drawn), tried)
    labels = given.scratch / "labels.parquet"
    how = {"gamma": critic["gamma"], "visit_key": critic["visit_key"], "outcome": critic["outcome"]}
    label_monte_carlo(episodes, labels, **how, validation_share=0.0, seed=given.campaign_seed)
    folders = replace(given.folders, rollouts=(episodes,), branches=tried, labels=labels)
    learnt, _ = labelled_sides(replace(given, folders=folders), gamma=critic["gamma"], outcome=critic["outcome"])
    return learnt, {"episodes": len(played), "success": sum(one.won for one in played) / len(played)}


def _tried(rollout: Mapping, given: Given, played: Sequence[Episode], drawn: Sequence[Game]) -> pa.Table:
    """Rows of BRANCHES at states of the episodes."""
    branch = Branch(**rollout["branch"] | {"validation_states": 0})
    plays = Plays(1, given.temperature, None, branch, given.play, given.seed)
    return branches(plays, given.policy, played, [], {game.id: game for game in drawn}, scratch=given.scratch / "plays")


def train(root: Path, way: str, games: int | None, out: Path, scratch: Path) -> dict:
    """Train and write the PRM; returns its figures.

    Raises:
        DataError: no campaign there, one whose critic learns otherwise, or one of too few games; ``out`` is there, and
            is no checkpoint.
    """
    check_out(out)
    params = params_of(root)
    if (name := params["critic"]["name"]) != "monte_carlo":
        raise DataError(f"{root / 'params.yaml'}: critic.name: {name!r}: the labels here are those of monte_carlo")
    config, given, first, held_out = labels_of(root, 1, scratch)
    given = replace(given, prior=config.prior)
    more, figures = visited(params, given, way, games or params["rollout"]["games"])
    trained = train_on_labels(config, given, [*first, *more], held_out, loss="bce")
    save_prm(trained.model, given, out)
    tokens, speaks = given.hardware.pass_tokens, given.trainee.renderer
    orders = ranked(trained.model, speaks, held_out, batch_tokens=tokens, seed=given.seed)
    validation = in_brief(trained.figures["validation"])
    return {"visited_by": way, "played": figures, "validation": validation, "ranking": orders["ranking"]}


def _way(name: str) -> str:
    try:
        return decoding(name).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> None:
    parser = campaign_parser("relabel", __doc__)
    parser.add_argument(
        "--visited-by", type=_way, default="best_of_16", help="best_of_16, beam_1x16, sample … (default %(default)s)"
    )
    parser.add_argument("--games", type=count, help="played so (default: as many as the rollouts')")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint's folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        where = (args.campaign, args.visited_by, args.games, args.out, Path(scratch))
        answer("relabel", lambda: train(*where), told, only_json=args.json)


if __name__ == "__main__":
    main()
