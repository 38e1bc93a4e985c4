"""An implicit PRM of a campaign's rollouts, trained so from the start, to be held against the campaign's own PRM.

    python -m benchmarks.implicit_prm --campaign . --labels turns --out data/implicit/turns --json
    python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/implicit/turns \
        --placebo data/checkpoints/prm/1 --scorers implicit,trained_likelihood,placebo --games data/games --split unseen

``--labels turns`` learns from the labels of all turns and of the actions tried beside them, ``outcome`` from whether an
episode was won (:mod:`agentprm_core.prm.implicit`). Learning rate, passes and mixing are the campaign's critic's
(``critic``), κ too; where that is 0 it is 0.3. It starts from the policy that played the rollouts. The scorer
``implicit`` reads it as it was trained (in beams wider than 1 without what came before), and ``trained_likelihood`` as
a policy. In the second command the scorer ``placebo`` is the campaign's own PRM. The last line is one JSON object: how
well it foretells the labels of the held-out games, and how it orders actions there.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from agentprm_core.arguments import count
from agentprm_core.methods.critic_base import save_prm
from agentprm_core.prm.implicit import LABELS, train_implicit_prm
from agentprm_core.prm.model import new_prm
from agentprm_core.search.scorers import KAPPA
from agentprm_core.training.settings import TrainSettings
from benchmarks.answering import answer, campaign_parser
from benchmarks.placebo_prm import check_out, in_brief, labels_of, told


def train(root: Path, iteration: int, labels: str, out: Path, scratch: Path, limit: int | None = None) -> dict:
    """Train and write the PRM; returns its figures. ``limit``: only so many training episodes.

    Raises:
        DataError: no campaign there, or one whose critic learns otherwise; ``out`` is there, and is no checkpoint.
    """
    check_out(out)
    config, given, learnt, held_out = labels_of(root, iteration, scratch)
    hardware = given.hardware.settings(
        learning_rate=config.learning_rate, batch_tokens=config.batch_tokens, seed=given.seed
    )
    settings = TrainSettings(**hardware, epochs=config.epochs, mixing=config.mixing)
    model = new_prm(given.trainee.model, config.likelihood or KAPPA)
    how = (given.trainee.renderer, model, settings, given.scratch)
    figures = train_implicit_prm(learnt[:limit], *how, labels=labels, held_out=held_out)
    save_prm(model, given, out)
    said = {"offset": figures["offset"], "validation": in_brief(figures["validation"])}
    return {"labels": labels, **said, "ranking": figures["ranking"]}


def main() -> None:
    parser = campaign_parser("implicit_prm", __doc__)
    parser.add_argument("--iteration", type=count, default=1, help="whose rollouts and labels (default %(default)s)")
    parser.add_argument("--labels", choices=LABELS, default="turns", help="what it learns from (default %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint's folder")
    parser.add_argument("--limit", type=count, help="only so many training episodes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        where = (args.campaign, args.iteration, args.labels, args.out, Path(scratch))
        answer("implicit_prm", lambda: train(*where, args.limit), told, only_json=args.json)


if __name__ == "__main__":
    main()
