"""Do PRMs get worse by iteration, or are their states harder? Every PRM, on the states of every iteration.

    python -m benchmarks.ranking_matrix --campaign . --json

The states of iteration j are those where π_{j−1} would do one thing or another, in games that no PRM of the campaign is
trained on; up to a few actions were tried at each, and played on by π_{j−1} (``rollout.branch``). PRM i is trained on
the plays of π_{i−1}. So the diagonal is what the campaign itself measures. Read a column downwards: the states stay the
same, and only the PRM differs. ``likelihood`` is the control that learnt nothing: how likely π_{j−1} finds the action.

The last line is one JSON object: ``rows``, a figure for each PRM and column with its 95 % interval over games.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from agentprm_core.arguments import count
from agentprm_core.methods.critic_base import labelled_sides
from agentprm_core.policy.models import Checkpoint, load_checkpoint
from agentprm_core.prm.dataset import Labelled
from agentprm_core.prm.model import likelihood_alone
from agentprm_core.prm.ranking import ranked
from benchmarks.answering import answer, campaign_parser
from benchmarks.campaigns import given_of, params_of
from benchmarks.tables import crossed

LIKELIHOOD = "likelihood"


def matrix(root: Path, threads: int) -> list[dict]:
    """A row for each scorer and iteration: ``scorer`` (``PRM 1`` …, or :data:`LIKELIHOOD`), ``states_of`` (the
    iteration), and :func:`agentprm_core.prm.ranking.ranked`'s ``ranking``, ``ranking_of_all`` and ``choosing``.

    Raises DataError where the folder is no campaign, or a part of it is not there yet.
    """
    params = params_of(root)
    torch.set_num_threads(threads)
    iterations = sorted(int(name) for name in params["iterations"])
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for states_of in iterations:
            given = given_of(root, params, states_of, Path(scratch))
            critic = params["critic"]
            _, held_out = labelled_sides(given, gamma=critic["gamma"], outcome=critic.get("outcome", "binary"))
            for name, scorer in _scorers(root, iterations, given.trainee):
                print(f"{name} on the states of iteration {states_of}", file=sys.stderr)
                told = _told(scorer, held_out, given.hardware.pass_tokens, given.seed)
                rows.append({"scorer": name, "states_of": states_of, **told})
    return rows


def _scorers(root: Path, iterations: Sequence[int], player: Checkpoint) -> Iterator[tuple[str, Checkpoint]]:
    for i in iterations:
        yield f"PRM {i}", load_checkpoint(root / f"data/checkpoints/prm/{i}", kind="prm")
    yield LIKELIHOOD, replace(player, model=likelihood_alone(player.model))


def _told(scorer: Checkpoint, held_out: Sequence[Labelled], tokens: int, seed: int) -> dict:
    return ranked(scorer.model, scorer.renderer, held_out, batch_tokens=tokens, seed=seed)


def table(rows: Sequence[dict]) -> str:
    """Markdown: a row a scorer, a column an iteration."""
    return crossed(rows, "scorer", "states_of", _cell, "states of iteration {}".format)


def _cell(row: dict) -> str:
    of = row["ranking"]
    if of["accuracy"] is None:
        return "no two actions that differ"
    share, low, high = (100 * of[name] for name in ("accuracy", "accuracy_low", "accuracy_high"))
    gain, room = row["choosing"]["gain"], row["choosing"]["headroom"]
    return f"{share:.1f} % [{low:.1f}, {high:.1f}] of {of['pairs']}; gain {gain:+.3f} of {room:.3f}"


def main() -> None:
    parser = campaign_parser("ranking_matrix", __doc__)
    parser.add_argument("--threads", type=count, default=1)
    args = parser.parse_args()
    answer(
        "ranking_matrix",
        lambda: {"rows": matrix(args.campaign, args.threads)},
        lambda found: table(found["rows"]),
        only_json=args.json,
    )


if __name__ == "__main__":
    main()
