"""The placebo of a campaign's PRM: trained as the PRM was, on labels permuted across games.

    python -m benchmarks.placebo_prm --campaign . --iteration 1 --out data/placebo/1 --json
    python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 \
        --placebo data/placebo/1 --games data/games --split unseen

The campaign's folder has ``params.yaml`` and the ``data`` that its stages wrote: rollouts, labels, branches, policies.
The placebo starts from the policy that played the rollouts, as the PRM of iteration 1 does, and is mixed with it as
that is (``critic.init_from.mixing``). A later PRM goes on from the one before, and its placebo does not: that one has
learnt something. For critics that learn from labels by cross-entropy (``monte_carlo``, ``playing_on``). The last line
is one JSON object: how well the placebo foretells the labels of the held-out games (``auc`` of ½ is nothing), and how
it ranks actions there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from agentprm_core.arguments import count
from agentprm_core.errors import DataError
from agentprm_core.methods.base import Given
from agentprm_core.methods.critic_base import CriticConfig, MixedInit, labelled_sides, save_prm, train_on_labels
from agentprm_core.policy.models import MANIFEST
from agentprm_core.prm.placebo import permuted
from agentprm_core.prm.ranking import in_short, ranked
from agentprm_core.prm.rows import Labelled
from benchmarks.answering import answer, campaign_parser
from benchmarks.campaigns import given_of, params_of

CRITICS = ("monte_carlo", "playing_on")
SHARED = ("name", "gamma", "learning_rate", "epochs", "batch_tokens", "likelihood", "prior", "require")


def check_out(out: Path) -> None:
    """Raises DataError for a folder that is there, and is no checkpoint: it is not replaced."""
    if out.exists() and not (out / MANIFEST).exists():
        raise DataError(f"--out: {out} is there, and is no checkpoint: name a folder that is not")


def critic_of(root: Path, params: Mapping) -> CriticConfig:
    """The campaign's critic, but that its PRM starts from the policy. Raises DataError for one that is not among
    :data:`CRITICS`."""
    critic = params["critic"]
    if critic["name"] not in CRITICS:
        raise DataError(
            f"{root / 'params.yaml'}: critic.name: {critic['name']!r} does not learn from labels by cross-entropy: one "
            f"of {', '.join(CRITICS)}"
        )
    mixing = critic["init_from"]["mixing"] if isinstance(critic["init_from"], dict) else 1.0
    return CriticConfig(**{name: critic[name] for name in SHARED}, init_from=MixedInit("policy", mixing))


def labels_of(root: Path, iteration: int, scratch: Path) -> tuple[CriticConfig, Given, list[Labelled], list[Labelled]]:
    """The campaign's critic (:func:`critic_of`), what its stage ``prm`` is given, and the labelled episodes of training
    and held-out games. Raises DataError as :func:`critic_of`, and where there is no campaign."""
    params = params_of(root)
    config = critic_of(root, params)
    given = given_of(root, params, iteration, scratch)
    torch.set_num_threads(given.threads)
    return config, given, *labelled_sides(given, gamma=config.gamma, outcome=params["critic"]["outcome"])


def train_placebo(root: Path, iteration: int, out: Path, scratch: Path, limit: int | None = None) -> dict:
    """Train and write the placebo; returns its figures. ``limit``: only so many training episodes.

    Raises:
        DataError: no campaign there, or one whose critic learns otherwise; ``out`` is there, and is no checkpoint.
    """
    check_out(out)
    config, given, train, held_out = labels_of(root, iteration, scratch)
    trained = train_on_labels(config, given, permuted(train[:limit], given.seed), held_out, loss="bce")
    trainee = given.trainee
    save_prm(trained.model, given, out)
    tokens = given.hardware.pass_tokens
    figures = ranked(trained.model, trainee.renderer, held_out, batch_tokens=tokens, seed=given.seed)
    return {"validation": in_brief(trained.figures["validation"]), **figures}


def in_brief(validation: Mapping) -> dict:
    """How well a PRM foretells held-out labels, of what :func:`agentprm_core.prm.validation.validate` says."""
    return {name: validation[name] for name in ("actions", "loss", "loss_of_mean", "auc")}


def told(figures: dict) -> str:
    """How a PRM does on held-out games, as a line."""
    auc = figures["validation"]["auc"]
    separates = "no auc" if auc is None else f"auc {auc:.3f}"  # where all held-out episodes ended alike
    return f"{separates} on held-out games; orders {in_short(figures['ranking'])}"


def main() -> None:
    parser = campaign_parser("placebo_prm", __doc__)
    parser.add_argument("--iteration", type=count, default=1, help="whose rollouts and labels (default %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint's folder")
    parser.add_argument("--limit", type=count, help="only so many training episodes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        where = (args.campaign, args.iteration, args.out, Path(scratch))
        answer("placebo_prm", lambda: train_placebo(*where, args.limit), told, only_json=args.json)


if __name__ == "__main__":
    main()
