"""Online DPO against π_{i−1}: the current policy's own actions at visited states, the PRM says which is better.

max E_{s~D, a~π}[Q_φ(s,a)] − β KL(π ‖ π_{i−1}) (paper A, eq. 4), by direct preferences: at every visited turn the policy
draws ``samples`` actions, the PRM scores them, and of the best and the worst

    loss = −log σ(β [(log π(a⁺|s) − log π_{i−1}(a⁺|s)) − (log π(a⁻|s) − log π_{i−1}(a⁻|s))]).

No step is taken in any world. All turns of an episode are one tree: one call a decoding step draws the actions, one
scores them, one makes the loss. Departs from the reference's code in that equal scores make no winner, the anchor is
π_{i−1} with LoRA too, and the logged KL counts the action's tokens only.

Shapes: ``P`` action tokens, ``J`` actions of a batch, two a pair: chosen, rejected, chosen, …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from agentprm_core.improve.pairs import Pair, PairCounts, select_pair
from agentprm_core.improve.proposals import Proposal, Proposer
from agentprm_core.improve.reference import Reference
from agentprm_core.improve.sft import check_fits
from agentprm_core.policy.models import Policy
from agentprm_core.policy.prompt import Rendered
from agentprm_core.prm.score import score_actions
from agentprm_core.training.attention import log_probs, packed_attention, to_device
from agentprm_core.training.packing import Row, pack
from agentprm_core.training.trainer import Batches, EpisodeTrainer, Losses, TrainSettings, fit
from agentprm_core.training.tree import branch_sums, tree_row
from agentprm_core.types import Episode


@dataclass(frozen=True)
class DpoSettings(TrainSettings):
    beta: float = 0.03
    """Weight of the KL to π_{i−1}."""
    refresh_every: int = 1
    """Optimizer steps between fresh pairs; 1 is fully online."""
    samples: int = 2
    """Actions drawn at a state, of which the best and the worst make a pair."""
    temperature: float = 1.0
    margin: float = 0.0
    """Pairs whose scores differ by no more are dropped."""
    constrained: bool = True
    """Draw from the admissible commands only."""
    max_action_tokens: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 2 or self.refresh_every < 1 or self.beta <= 0:
            raise ValueError(
                f"samples must be at least 2, refresh_every at least 1, beta above 0: {self.samples}, "
                f"{self.refresh_every}, {self.beta}"
            )
        if self.save_every % self.refresh_every:
            raise ValueError(
                f"save_every {self.save_every} must be a multiple of refresh_every {self.refresh_every}: a resumed run "
                f"draws its pairs anew"
            )


def train_online_dpo(
    episodes: Sequence[Episode], policy: Policy, prm: Policy, settings: DpoSettings, scratch: Path
) -> tuple[PreTrainedModel, dict]:
    """Train ``policy.model`` in place on states that ``episodes`` visited; as it comes, it is π_{i−1}.

    Returns:
        The model, and :func:`agentprm_core.training.trainer.fit`'s metrics. The curve also has ``kl`` (nats an action,
        to π_{i−1}), ``accuracy`` (share of pairs that π already orders so, relative to π_{i−1}), ``score`` (mean Q_φ
        of the actions drawn: what is being maximised), ``gap`` (mean difference of a pair's scores), and of the
        states visited the shares ``paired``, ``same`` (all samples one action) and ``tied``.

    Raises:
        ValueError: no episodes, one longer than the context, nothing trainable.
    """
    trainer = OnlineDpoTrainer(episodes, policy, prm, settings, scratch)
    return policy.model, fit(trainer)


class OnlineDpoTrainer(EpisodeTrainer):
    """Turns batches of visited episodes into batches of pairs, every ``refresh_every`` steps."""

    def __init__(
        self, episodes: Sequence[Episode], policy: Policy, prm: Policy, settings: DpoSettings, scratch: Path
    ) -> None:
        self._episodes, self._policy, self._prm = episodes, policy, prm
        self._rendered = [policy.renderer.episode(episode.turns) for episode in episodes]
        for episode, rendered in zip(episodes, self._rendered):
            check_fits(len(rendered.input_ids), episode, policy.model)
        rows = [Row(np.array(r.input_ids, dtype=np.int32), {"weight": np.zeros(len(r.input_ids), np.float32)})
                for r in self._rendered]  # fmt: skip
        super().__init__(policy.model, rows, lambda model, batch: dpo_objective(model, batch, settings.beta),
                         settings, scratch)  # fmt: skip
        self._reference = Reference(policy.model)
        self._proposer = Proposer(
            policy,
            temperature=settings.temperature,
            constrained=settings.constrained,
            max_action_tokens=settings.max_action_tokens,
            batch_tokens=settings.batch_tokens,
        )
        self._due: Batches = []

    def step_batches(self, epoch_iterator, num_batches: int) -> Batches:
        if not self._due:
            left = self.state.max_steps - self.state.global_step
            count = min(self.settings.refresh_every, left) * num_batches
            visited = [next(epoch_iterator)["rows"].tolist() for _ in range(count)]
            self._due = self._refresh(visited)
        due, self._due = self._due[:num_batches], self._due[num_batches:]
        return due

    def _refresh(self, visited: Sequence[Sequence[int]]) -> Batches:
        """Fresh pairs at the states of these rows, batch by batch, with π_{i−1}'s log-probabilities."""
        numbers = [i for batch in visited for i in batch]
        seeds = [(self.settings.seed, self.state.global_step, position, i) for position, i in enumerate(numbers)]
        episodes = [self._episodes[i] for i in numbers]
        proposals = self._proposer.propose(episodes, self.settings.samples, seeds)
        counts = PairCounts()
        pairs = judge(episodes, proposals, self._prm, self.settings, counts)
        self._report(counts)
        batches, begin = [], 0
        for batch in visited:
            end = begin + len(batch)
            rendered = [self._rendered[i] for i in batch]
            batches.append(self._referred([pair_row(r, p) for r, p in zip(rendered, pairs[begin:end])]))
            begin = end
        return batches

    def _referred(self, rows: Sequence[Row]) -> dict:
        """The packed rows, and ``reference`` (P,): π_{i−1}'s log-probability of each action token."""
        batch = to_device(pack(rows), self._policy.model.device)
        with torch.no_grad(), packed_attention(self._policy.model), self._reference.in_place():
            reference_P, _ = log_probs(self._policy.model, batch, batch["branch"] >= 0)
        return batch | {"reference": reference_P}

    def _report(self, counts: PairCounts) -> None:
        for name in ("pairs", "same", "tied"):
            self.note("paired" if name == "pairs" else name, getattr(counts, name), counts.states)
        self.note("score", counts.score, counts.states)
        self.note("gap", counts.gap, counts.pairs)


def judge(
    episodes: Sequence[Episode],
    proposals: Sequence[Sequence[Sequence[Proposal]]],
    prm: Policy,
    settings: DpoSettings,
    counts: PairCounts,
) -> list[list[Pair]]:
    """By episode the pairs of its turns, by the PRM's scores. Each distinct action is scored once."""
    distinct = [
        [(turn, proposal.action, proposal.reason) for turn, drawn in enumerate(of_episode) for proposal in drawn]
        for of_episode in proposals
    ]
    distinct = [list(dict.fromkeys(tried)) for tried in distinct]
    scores = score_actions(prm.model, prm.renderer, episodes, distinct, settings.batch_tokens)
    pairs = []
    for of_episode, tried, score in zip(proposals, distinct, scores):
        worth = dict(zip(tried, score.tolist()))
        found = [
            select_pair(turn, drawn, [worth[turn, p.action, p.reason] for p in drawn], settings.margin, counts)
            for turn, drawn in enumerate(of_episode)
            if drawn
        ]
        pairs.append([pair for pair in found if pair])
    return pairs


def pair_row(rendered: Rendered, pairs: Sequence[Pair]) -> Row:
    """The episode and two branches a pair, chosen first. ``weight`` is 1 once a pair."""
    branches = []
    for pair in pairs:
        for proposal, weight in ((pair.chosen, 1.0), (pair.rejected, 0.0)):
            own = np.zeros(len(proposal.tokens), np.float32)
            own[-1] = weight
            branches.append((rendered.action_starts[pair.turn], proposal.tokens, {"weight": own}))
    return tree_row(rendered.input_ids, {"weight": np.zeros(len(rendered.input_ids), np.float32)}, branches)


def dpo_objective(model: torch.nn.Module, batch: dict, beta: float) -> Losses:
    """Σ over pairs of −log σ(β·margin); the margin is the pair's difference of log π/π_{i−1}."""
    is_action_N = batch["branch"] >= 0
    branch_P, number = batch["branch"][is_action_N], int(batch["branch"].max()) + 1
    log_prob_P, _ = log_probs(model, batch, is_action_N)
    ratio_P = log_prob_P - batch["reference"]
    ratio_J = branch_sums(ratio_P, branch_P, number)
    margin = ratio_J[0::2] - ratio_J[1::2]
    with torch.no_grad():
        # E_π[log π/π_ref] ≥ 0 token by token: r − 1 − log r with r = π_ref/π
        kl = (torch.expm1(-ratio_P) + ratio_P).sum()
        metrics = {"kl": (kl, number), "accuracy": ((margin > 0).float().sum(), margin.numel())}
    return Losses(F.softplus(-beta * margin).sum(), metrics)
