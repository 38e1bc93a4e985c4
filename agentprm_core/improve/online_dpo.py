"""Online DPO against an anchor: the current policy's own actions at visited states, the PRM says which is better.

max E_{s~D, a~π}[Q_φ(s,a)] − β KL(π ‖ π_{i−1}) (paper A, eq. 4), by direct preferences: at every visited turn the policy
draws ``samples`` actions, the PRM scores them, and :mod:`agentprm_core.improve.preferences` makes the loss. Its anchor
is π_{i−1}, the policy as it comes, unless the caller gives another, which then takes its place.

No step is taken in any world. All turns of an episode are one tree: one call a decoding step draws the actions, one
scores them, one makes the loss. Departs from the reference's code in that equal scores make no winner, the anchor is
never the base without its adapter, and the logged KL counts the action's tokens only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from agentprm_core.improve.choices import Choices
from agentprm_core.improve.pairs import UNENDED, Choice, Pair, PairCounts, select_pair
from agentprm_core.improve.preferences import PREFERENCES, ChoiceColumns, choice_row
from agentprm_core.improve.proposals import Proposal, Proposer
from agentprm_core.improve.reference import Reference, ReferredBatch
from agentprm_core.improve.sft import check_fits
from agentprm_core.policy.decoding import Constrained
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.score import score_actions
from agentprm_core.training.columns import TrainColumns
from agentprm_core.training.packing import Row, pack
from agentprm_core.training.settings import TrainSettings
from agentprm_core.training.trainer import Batches, Callback, EpisodeTrainer, fit
from agentprm_core.types import Episode

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class DpoSettings(TrainSettings):
    beta: float = 0.03
    """Weight of the KL to the anchor."""
    refresh_every: int = 1
    """Optimizer steps between fresh pairs; 1 is fully online."""
    samples: int = 2
    """Actions drawn at a state. ``winner``: the best and the worst make a pair."""
    temperature: float = 1.0
    margin: float = 0.0
    """States whose best and worst score differ by no more are counted as tied, and dropped by ``winner``."""
    preference: str = "winner"
    """``winner``: the best against the worst, as in DPO. ``soft``: all actions drawn, as strongly as they differ."""
    imitation: float = 0.0
    """Weight of imitating the episodes that were won, beside 1 for the preferences; 0 reads no outcome."""
    constrained: bool = True
    """Draw from the admissible commands only."""
    max_action_tokens: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preference not in PREFERENCES:
            raise ValueError(f"preference: {self.preference!r} is not one of {', '.join(PREFERENCES)}")
        if self.samples < 2 or self.refresh_every < 1 or self.beta <= 0 or self.imitation < 0:
            raise ValueError(
                f"samples must be at least 2, refresh_every at least 1, beta above 0, imitation at least 0: "
                f"{self.samples}, {self.refresh_every}, {self.beta}, {self.imitation}"
            )
        if self.save_every % self.refresh_every:
            raise ValueError(
                f"save_every {self.save_every} must be a multiple of refresh_every {self.refresh_every}: a resumed run "
                f"draws its pairs anew"
            )


def train_online_dpo(
    episodes: Sequence[Episode],
    policy: Checkpoint,
    prm: Checkpoint,
    settings: DpoSettings,
    scratch: Path,
    callbacks: Sequence[Callback] = (),
    anchor: PreTrainedModel | None = None,
) -> tuple[PreTrainedModel, dict]:
    """Train ``policy.model`` in place on states that ``episodes`` visited; as it comes, it is π_{i−1}.

    ``callbacks`` look on, such as :class:`agentprm_core.improve.watch.Watch`. ``anchor``: the model that the
    policy is kept near instead of π_{i−1}, such as π₀; of the same parts, its weights are copied.

    Returns:
        The model, and :func:`agentprm_core.training.trainer.fit`'s metrics. The curve also has ``kl`` (to the anchor,
        nats an action, :mod:`agentprm_core.improve.kl`), ``accuracy`` (share of states where π, relative to the anchor,
        already likes the best action most), ``score`` (mean Q_φ of the actions drawn: what is being maximised), ``gap``
        (mean difference of a pair's scores), and of the states visited the shares ``paired``, ``same`` (all samples
        one action) and ``tied``.

    Raises:
        ValueError: no episodes, one longer than the context, nothing trainable, an anchor of another kind.
    """
    trainer = OnlineDpoTrainer(episodes, policy, prm, settings, scratch, anchor)
    trainer.callbacks += callbacks
    return policy.model, fit(trainer)


def new_proposer(policy: Checkpoint, settings: DpoSettings) -> Proposer:
    """Who draws the actions that are compared."""
    return Proposer(
        policy,
        temperature=settings.temperature,
        constrained=settings.constrained,
        max_action_tokens=settings.max_action_tokens,
        batch_tokens=settings.batch_tokens,
    )


class OnlineDpoTrainer(EpisodeTrainer[DpoSettings]):
    """Turns batches of visited episodes into batches of pairs, every ``refresh_every`` steps."""

    def __init__(
        self,
        episodes: Sequence[Episode],
        policy: Checkpoint,
        prm: Checkpoint,
        settings: DpoSettings,
        scratch: Path,
        anchor: PreTrainedModel | None = None,
    ) -> None:
        self._episodes, self._policy, self._prm = episodes, policy, prm
        self._rendered = [policy.renderer.episode(episode.turns) for episode in episodes]
        for episode, rendered in zip(episodes, self._rendered):
            check_fits(len(rendered.input_ids), episode, policy.model)
        rows = [
            Row(np.array(r.input_ids, dtype=np.int32), TrainColumns.zeros(len(r.input_ids))) for r in self._rendered
        ]
        self._choices = Choices()
        self._decoding = Constrained(policy, settings.max_action_tokens) if settings.constrained else None
        objective = partial(
            PREFERENCES[settings.preference], beta=settings.beta, imitation=settings.imitation, choices=self._choices
        )
        super().__init__(policy.model, rows, objective, settings, scratch)
        self._reference, self._anchored = Reference(policy.model, anchor), anchor is not None
        self._proposer = new_proposer(policy, settings)
        self._due: Batches = []

    def decided_by(self) -> list[Mapping[str, torch.Tensor]]:
        anchor = [self._reference.weights] if self._anchored else []
        return [*super().decided_by(), self._prm.model.state_dict(), *anchor]

    def batches(self, step: int) -> Batches:
        if not self._due:
            steps = range(step, min(step + self.settings.refresh_every, self.steps))
            self._due = self.fresh([numbers for each in steps for numbers in self.due(each)])
        due, self._due = self._due[: self.settings.accumulation], self._due[self.settings.accumulation :]
        return due

    def fresh(self, visited: Sequence[Sequence[int]]) -> Batches:
        """Fresh pairs at the states of these rows, batch by batch, with the anchor's log-probabilities."""
        numbers = [i for batch in visited for i in batch]
        seeds = [(self.settings.seed, self.step, position, i) for position, i in enumerate(numbers)]
        episodes = [self._episodes[i] for i in numbers]
        proposals = self._proposer.propose(episodes, self.settings.samples, seeds)
        choices = scored(episodes, proposals, self._prm, self.settings.batch_tokens)
        counts = PairCounts()
        rows = iter([self._row(i, of_episode, counts) for i, of_episode in zip(numbers, choices)])
        self._report(counts)
        return [self._referred([next(rows) for _ in batch]) for batch in visited]

    def _row(self, number: int, choices: Sequence[Choice], counts: PairCounts) -> Row[ChoiceColumns]:
        """The episode with the actions drawn at its states; ``winner``: at those where they differ in worth."""
        pairs = [(choice, select_pair(choice, self.settings.margin, counts)) for choice in choices]
        if self.settings.preference == "winner":
            kept = [pair.as_choice for _, pair in pairs if pair]
        else:
            kept = [choice.distinct for choice, _ in pairs]
        episode = self._episodes[number]
        imitated = self.settings.imitation > 0 and episode.won
        return choice_row(
            self._rendered[number], kept, episode.start if imitated else None, partial(self._among, episode)
        )

    def _among(self, episode: Episode, turn: int, tokens: Sequence[int]) -> np.ndarray:
        """The numbers of the sets that an action's tokens were drawn from."""
        return self._choices.of(episode.turns[turn], tokens, self._decoding)

    def _referred(self, rows: Sequence[Row[ChoiceColumns]]) -> ReferredBatch[ChoiceColumns]:
        """The packed rows, and what the anchor says of each action token."""
        batch = pack(rows).to(self._policy.model.device)
        return self._reference.refer(batch, batch.branch >= 0, self._choices.logits)

    def _report(self, counts: PairCounts) -> None:
        for name in ("pairs", "same", "tied"):
            self.note("paired" if name == "pairs" else name, getattr(counts, name), counts.states)
        self.note("score", counts.score, counts.states)
        self.note("gap", counts.gap, counts.pairs)


def judge(
    episodes: Sequence[Episode],
    proposals: Sequence[Sequence[Sequence[Proposal]]],
    prm: Checkpoint,
    settings: DpoSettings,
    counts: PairCounts,
) -> list[list[Pair]]:
    """By episode the pairs of its turns, by the PRM's scores."""
    choices = scored(episodes, proposals, prm, settings.batch_tokens)
    pairs = [[select_pair(choice, settings.margin, counts) for choice in of_episode] for of_episode in choices]
    return [[pair for pair in of_episode if pair] for of_episode in pairs]


def scored(
    episodes: Sequence[Episode], proposals: Sequence[Sequence[Sequence[Proposal]]], prm: Checkpoint, batch_tokens: int
) -> list[list[Choice]]:
    """By episode the actions drawn at each of its decided turns with the PRM's scores. Each distinct one is scored
    once."""
    drawn = [
        [(turn, proposal.action, proposal.reason) for turn, at_turn in enumerate(of_episode) for proposal in at_turn]
        for of_episode in proposals
    ]
    distinct = [list(dict.fromkeys(tried)) for tried in drawn]
    scores = score_actions(prm.model, prm.renderer, episodes, distinct, batch_tokens)
    choices = []
    for of_episode, tried, score in zip(proposals, distinct, scores):
        worth = dict(zip(tried, score.tolist()))
        choices.append([_choice(turn, at_turn, worth) for turn, at_turn in enumerate(of_episode) if at_turn])
    return choices


def _choice(turn: int, drawn: Sequence[Proposal], worth: dict[tuple[int, str, str], float]) -> Choice:
    scores = tuple(worth[turn, p.action, p.reason] if p.ended else UNENDED for p in drawn)
    return Choice(turn, tuple(drawn), scores)
