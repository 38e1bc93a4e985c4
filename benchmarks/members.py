"""More PRMs of a campaign's labels: members that differ in the order of batches, their average, one trained longer.

    python -m benchmarks.members --campaign . --iteration 1 --members 4 --out data/members --json
    python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/members/average \
        --games data/games --split unseen
    python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/members/1,data/members/2 \
        --games data/games --split unseen

Each member is trained as the campaign's PRM of iteration 1 is, from the policy that played the rollouts, and is not
mixed with it (``critic.init_from.mixing``). ``OUT/1`` is the first one, ``OUT/average`` has the mean of all members'
weights (:func:`agentprm_core.prm.ensemble.averaged`), and ``OUT/passes`` is one PRM with as many times the passes: the
same training, spent on one. Each has a second folder beside it, ``OUT/1-halfway``: the mean of its weights and those
that it started from. For critics that learn from labels by cross-entropy (``monte_carlo``, ``playing_on``). The last
line is one JSON object: how each ranks actions of held-out games.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentprm_core.arguments import at_least, count
from agentprm_core.errors import DataError
from agentprm_core.methods.base import Given
from agentprm_core.methods.critic_base import save_prm, starting_prm, train_on_labels
from agentprm_core.policy.models import MANIFEST
from agentprm_core.prm.ensemble import averaged
from agentprm_core.prm.ranking import in_short, ranked
from agentprm_core.seeding import episode_seed
from benchmarks.answering import answer, campaign_parser
from benchmarks.placebo_prm import labels_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def train_members(root: Path, iteration: int, members: int, out: Path, scratch: Path, limit: int | None = None) -> dict:
    """Train and write all; returns {name: how it ranks held-out actions}. ``limit``: only so many training episodes.

    Raises:
        DataError: no campaign there, or one whose critic learns otherwise; ``out`` has something else.
    """
    if out.exists() and any(out.iterdir()) and not (out / "1" / MANIFEST).exists():
        raise DataError(f"--out: {out} is there, and has no members: name a folder that is not")
    config, given, train, held_out = labels_of(root, iteration, scratch)
    config, train, made = replace(config, init_from="policy"), train[:limit], {}

    def keep(name: str, model: PreTrainedModel) -> None:
        write(name, model)
        write(f"{name}-halfway", averaged([model, start]))

    def write(name: str, model: PreTrainedModel) -> None:
        save_prm(model, given, out / name)
        tokens = given.hardware.pass_tokens
        found = ranked(model, given.trainee.renderer, held_out, batch_tokens=tokens, seed=given.seed)
        made[name] = found["ranking"]["accuracy"]
        print(f"{name}: orders {in_short(found['ranking'])}", file=sys.stderr, flush=True)

    models, start = [], starting_prm(config, given)
    for number in range(1, members + 1):
        models.append(train_on_labels(config, _drawn(given, number), train, held_out, loss="bce").model)
        keep(str(number), models[-1])
    keep("average", averaged(models))
    longer = replace(config, epochs=members * config.epochs)
    keep("passes", train_on_labels(longer, given, train, held_out, loss="bce").model)
    return {"orders": made}


def _drawn(given: Given, number: int) -> Given:
    """What the member is given: the first one the campaign's own seed."""
    return given if number == 1 else replace(given, seed=episode_seed(given.seed, "member", number) % 2**32)


def main() -> None:
    parser = campaign_parser("members", __doc__)
    parser.add_argument("--iteration", type=count, default=1, help="whose rollouts and labels (default %(default)s)")
    parser.add_argument("--members", type=at_least(2), default=4, help="(default %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="a folder of checkpoints")
    parser.add_argument("--limit", type=count, help="only so many training episodes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        where = (args.campaign, args.iteration, args.members, args.out, Path(scratch))
        answer(
            "members",
            lambda: train_members(*where, args.limit),
            lambda found: f"{len(found['orders'])} PRMs in {args.out}",
            only_json=args.json,
        )


if __name__ == "__main__":
    main()
