"""InversePRM (paper A, arXiv 2502.10325): a PRM from demonstrations, without any outcome reward.

**What it learns from.** The turns of experts D⁺ (the demonstrations) and of learners D⁻ (the rollouts of all iterations
so far). With the implicit reward r(s,a) = Q(s,a) − γ E_{a'~π}[Q(s',a')], experts' turns should earn more than
learners'. On D⁺ the next action a' is resampled from π_{i−1}; on D⁻ it is what the learner did. Weights give the two
classes as many episodes. With ``negatives: lost`` the learners' turns are those of lost episodes alone (ours). An
episode that was won holds much that the expert would have done, and else the PRM is told that all of it is the
learner's. That reads outcomes.

**How it learns.** BCE(σ(Q(s,a) − γ Q(s',a')), expert?), and Q(s,a) alone at the last turn. Gradients run through both
Q.

No outcome is read here. ``ends`` says what a last turn tells. With ``told`` (paper A's setting) episodes are read to
where the world ended them. A world that ends an episode when it is won tells of the win by that. With ``cut`` every
episode, of experts and of learners, is cut at a drawn length first (:mod:`agentprm_core.credit.cutting`), so that it
stops somewhere for no reason.

Departs from the reference's code in that a' is joined to its state by name: there it is shifted by one row after each
last turn. Classes are balanced by weights instead of throwing episodes away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from agentprm_core.credit.cutting import DEMONSTRATIONS, Cut
from agentprm_core.credit.expert_and_learner import INVERSE, RESAMPLED, assemble_inverse
from agentprm_core.datasets import episodes_from_table, read_table
from agentprm_core.errors import DataError
from agentprm_core.improve.proposals import Proposer
from agentprm_core.methods.base import Given, Labels, TrainedPrm
from agentprm_core.methods.critic_base import CriticConfig, starting_prm
from agentprm_core.prm.dataset import tried_episodes
from agentprm_core.prm.inverse_train import InverseEpisode, InverseSettings, train_inverse
from agentprm_core.suites import inverse_suite
from agentprm_core.types import EPISODES, Episode

_PORTION = 512
"""Demonstrations whose actions are drawn as one call."""
_TOKENS = 4096
"""Of demonstrations read together."""

Sides = tuple[list[InverseEpisode], list[InverseEpisode]]
"""Training and held-out games."""


@dataclass(frozen=True, kw_only=True)
class Config(CriticConfig):
    """Parameters of ``critic.name: inverse``."""

    negatives: Literal["all", "lost"]
    """Which of the learners' episodes are D⁻: all of them, or those that were lost, which reads outcomes."""
    ends: Literal["told", "cut"]
    """Whether it is told where episodes end: ``told`` (paper A's setting), or ``cut``, where each episode is cut at a
    length that is drawn without looking at it."""


def label(config: Config, given: Given) -> Labels:
    """Rows of INVERSE: the turns of D⁺ and D⁻."""
    cut = _cut(config, given)
    rows = assemble_inverse(
        given.folders.demos,
        list(given.folders.rollouts),
        _resampled(given, cut),
        validation_share=given.validation_share,
        seed=given.campaign_seed,
        lost_only=config.negatives == "lost",
        cut=cut,
    )
    return Labels(rows, _figures(rows), inverse_suite(rows))


def train(config: Config, given: Given) -> TrainedPrm:
    """What was tried beside the held-out episodes, with its outcomes, measures the ranking only."""
    train_side, held_out = inverse_episodes(config, given)
    hardware = given.hardware.settings(
        learning_rate=config.learning_rate, batch_tokens=config.batch_tokens, seed=given.seed
    )
    settings = InverseSettings(**hardware, epochs=config.epochs, mixing=config.mixing, gamma=config.gamma)
    renderer, start = given.trainee.renderer, starting_prm(config, given)
    model, figures = train_inverse(train_side, renderer, start, settings, given.scratch, held_out)
    games = {item.episode.game_id for item in held_out}
    measured = tried_episodes(given.folders.rollouts[-1], given.folders.branches, gamma=config.gamma)
    measured = [item for item in measured if item.episode.game_id in games]
    return TrainedPrm(model, figures, measured, "share of expert turns")


def _cut(config: Config, given: Given) -> Cut | None:
    return Cut(given.most_turns, given.campaign_seed) if config.ends == "cut" else None


def inverse_episodes(config: Config, given: Given) -> Sides:
    """Episodes of D⁺ and D⁻ as :func:`label` put them together.

    Raises:
        DataError: rows of other episodes than lie there now.
    """
    rows, cut = read_table(given.folders.labels, INVERSE), _cut(config, given)
    sides: Sides = ([], [])
    for dataset, path in enumerate((given.folders.demos, *given.folders.rollouts)):
        own = rows.filter(pc.equal(rows["dataset"], dataset))  # pyright: ignore[reportAttributeAccessIssue]: made at import
        game, number, split = (own[name].to_pylist() for name in ("game_id", "episode", "split"))
        after = list(zip(own["next_action"].to_pylist(), own["next_reason"].to_pylist()))
        weight_N, first = own["weight"].to_numpy(), 0
        for whole in episodes_from_table(read_table(path, EPISODES)):
            if config.negatives == "lost" and dataset and whole.won:
                continue
            episode = cut.episode(whole, dataset) if cut else whole
            end = first + episode.length - episode.start
            if end > len(after) or (game[first], number[first]) != (episode.game_id, episode.index):
                raise _others(given, path)
            resampled = after[first : end - 1] if dataset == 0 else ()
            item = InverseEpisode(episode, dataset == 0, float(weight_N[first]), resampled)
            sides[split[first] == "validation"].append(item)
            first = end
        if first != len(after):
            raise _others(given, path)
    return sides


def _others(given: Given, path: object) -> DataError:
    return DataError(
        f"{given.folders.labels}: rows of other episodes than those of {path}. "
        f"Make them again: dvc repro label@{given.iteration}"
    )


def _resampled(given: Given, cut: Cut | None) -> pa.Table:
    """Rows of RESAMPLED: what π_{i−1} would do at every demonstrated state but the first of each episode."""
    proposer = Proposer(
        given.policy,
        temperature=given.temperature,
        constrained=given.play.constrained,
        max_action_tokens=given.play.max_action_tokens,
        batch_tokens=_TOKENS,
    )
    found: dict[str, list] = {name: [] for name in RESAMPLED.names}
    for numbered in _portions(read_table(given.folders.demos, EPISODES), cut):
        seeds = [(given.seed, number) for number, _ in numbered]
        drawn = proposer.propose([demo for _, demo in numbered], 1, seeds)
        for (_, demo), of_demo in zip(numbered, drawn):
            for turn in range(demo.start + 1, demo.length):
                (proposal,) = of_demo[turn]
                values = (demo.game_id, demo.index, turn, proposal.action, proposal.reason)
                for name, value in zip(RESAMPLED.names, values):
                    found[name].append(value)
    return pa.table(found, schema=RESAMPLED)


def _portions(demos: pa.Table, cut: Cut | None) -> Iterator[list[tuple[int, Episode]]]:
    """The demonstrations, cut or whole, with their numbers, some at a time."""
    portion: list[tuple[int, Episode]] = []
    for number, demo in enumerate(episodes_from_table(demos)):
        portion.append((number, cut.episode(demo, DEMONSTRATIONS) if cut else demo))
        if len(portion) == _PORTION:
            yield portion
            portion = []
    if portion:
        yield portion


def _figures(rows: pa.Table) -> dict:
    """Episodes and turns of both classes, and how often the policy would do what the expert does next."""
    table = cast(pl.DataFrame, pl.from_arrow(rows.drop_columns(["next_reason"])))
    expert, learner = table.filter("expert"), table.filter(~pl.col("expert"))
    following = expert.with_columns(own=pl.col("action").shift(-1)).filter(~pl.col("terminal"))
    return {
        "expert_episodes": int(expert["terminal"].sum()),
        "expert_turns": len(expert),
        "learner_episodes": int(learner["terminal"].sum()),
        "learner_turns": len(learner),
        "as_the_expert": (following["next_action"] == following["own"]).mean(),
    }
