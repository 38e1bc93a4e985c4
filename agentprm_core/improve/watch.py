"""Looks at a policy while it is trained, for :mod:`agentprm_core.improve.monitor` to judge.

A look draws actions at the states of a probe of episodes, as training does, and scores them; where the caller gives a
way to play, games are played too. It changes nothing about the training, and draws from no generator that training
draws from. Looks are kept in the trainer's log, so a resumed run goes on with those it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from agentprm_core.credit.monte_carlo import discounted
from agentprm_core.errors import DataError
from agentprm_core.improve.kl import kl_sum
from agentprm_core.improve.monitor import Look, signals
from agentprm_core.improve.online_dpo import scored
from agentprm_core.improve.pairs import Choice
from agentprm_core.improve.proposals import Proposer
from agentprm_core.improve.reference import Reference
from agentprm_core.policy.models import Checkpoint
from agentprm_core.prm.score import score_episodes
from agentprm_core.training.attention import logits_of, packed_attention
from agentprm_core.training.columns import Columns, Values
from agentprm_core.training.packing import Row, cut, pack
from agentprm_core.training.trainer import EpisodeTrainer
from agentprm_core.training.tree import tree_row
from agentprm_core.types import Episode


@dataclass(frozen=True)
class Returns:
    """How a return is counted, as the PRM's labels were: :func:`agentprm_core.credit.monte_carlo.discounted`."""

    gamma: float
    outcome: str

    def of(self, episode: Episode) -> np.ndarray:
        """(T,) of each turn."""
        after_T = np.arange(episode.length)[::-1]
        return discounted(np.full(episode.length, episode.reward), after_T, gamma=self.gamma, outcome=self.outcome)


class Probe:
    """The states and games a policy is looked at in. Make it before training: the policy is π_{i−1} then."""

    def __init__(
        self,
        episodes: Sequence[Episode],
        proposer: Proposer,
        prm: Checkpoint,
        *,
        samples: int,
        batch_tokens: int,
        seed: int,
        auditor: Checkpoint | None = None,
        play: Callable[[], Sequence[Episode]] | None = None,
        returns: Returns | None = None,
    ) -> None:
        """``proposer`` draws for the policy that is trained. ``auditor``: a PRM that was trained on other games.
        ``play``: plays the same games with the same seeds each time, with the policy as it is then.

        Raises DataError without episodes, ValueError with ``play`` but no ``returns``.
        """
        self._episodes = [episode for episode in episodes if episode.start < episode.length]
        if not self._episodes:
            raise DataError(
                "no episode with a turn to look at the policy in: hold out more games (rollout.games, "
                "rollout.validation_share)"
            )
        if (play is None) != (returns is None):
            raise ValueError("play and returns go together: what is played has to be counted")
        self._proposer, self._prm, self._auditor = proposer, prm, auditor
        self._samples, self._batch_tokens, self._play, self._returns = samples, batch_tokens, play, returns
        self._seeds = [(seed, number) for number in range(len(self._episodes))]
        self._reference = Reference(proposer.policy.model)

    def look(self, step: int) -> Look:
        """The policy as it is now."""
        proposals = self._proposer.propose(self._episodes, self._samples, self._seeds)
        liked = scored(self._episodes, proposals, self._prm, self._batch_tokens)
        seen = {"kl": self._kl(liked), "score": _means(liked), "repeated": self._repeated(liked)}
        if self._auditor is not None:
            audited = scored(self._episodes, proposals, self._auditor, self._batch_tokens)
            seen |= {"audit": _means(audited), "agreement": agreement(liked, audited)}
        if self._play is not None:
            seen |= self._played(sorted(self._play(), key=lambda episode: (episode.game_id, episode.index)))
        return Look(step, **seen)

    def _repeated(self, choices: Sequence[Sequence[Choice]]) -> list[float]:
        return [
            float(np.mean([repeats(episode, choice) for choice in of_episode]))
            for episode, of_episode in zip(self._episodes, choices)
        ]

    def _played(self, episodes: Sequence[Episode]) -> dict[str, list[float]]:
        prm, returns = self._prm, self._returns
        assert returns is not None  # it comes with what plays
        scores = score_episodes(prm.model, prm.renderer, episodes, self._batch_tokens)
        return {
            "believed": [float(q_T.mean()) for q_T in scores],
            "returned": [float(returns.of(episode).mean()) for episode in episodes],
        }

    @torch.no_grad()
    def _kl(self, choices: Sequence[Sequence[Choice]]) -> float:
        """Mean over the actions drawn of their tokens' KL to π_{i−1}."""
        policy = self._proposer.policy
        rows = [_row(policy, episode, of_episode) for episode, of_episode in zip(self._episodes, choices)]
        drawn, total = sum(len(of_episode) for of_episode in choices) * self._samples, 0.0
        for numbers in cut(range(len(rows)), [len(row) for row in rows], self._batch_tokens):
            batch = pack([rows[i] for i in numbers]).to(policy.model.device)
            where_N = batch.branch >= 0
            batch = self._reference.refer(batch, where_N)
            with packed_attention(policy.model):
                logits_PV = logits_of(policy.model, batch, where_N)
            total += float(kl_sum(logits_PV, batch, batch.columns.times[where_N]))
        return total / drawn


class Watch:
    """Takes a look before the first step, every ``every`` steps and at the end."""

    def __init__(self, probe: Probe, *, every: int, stop: bool) -> None:
        """``stop``: end the training at the first look that fires a signal; the weights stay as they are then."""
        self._probe, self._every, self._stop = probe, every, stop
        self.looks: list[Look] = []

    def on_begin(self, trainer: EpisodeTrainer) -> None:
        self.looks = [Look(**entry["look"]) for entry in trainer.log if "look" in entry]
        if not self.looks:
            self._look(trainer)

    def on_step(self, trainer: EpisodeTrainer) -> bool:
        if trainer.step % self._every:
            return False
        self._look(trainer)
        return self._stop and bool(signals(self.looks))

    def on_end(self, trainer: EpisodeTrainer) -> None:
        if self.looks[-1].step != trainer.step:
            self._look(trainer)

    def _look(self, trainer: EpisodeTrainer) -> None:
        self.looks.append(self._probe.look(trainer.step))
        trainer.log.append({"step": trainer.step, "look": asdict(self.looks[-1])})


def repeats(episode: Episode, choice: Choice) -> float:
    """Share of the actions drawn at a turn that were done before in this episode, in the same state of the world."""
    here = episode.turns[choice.turn].state_key
    done = {turn.action for turn in episode.turns[: choice.turn] if turn.state_key == here}
    return sum(proposal.action in done for proposal in choice.proposals) / len(choice.proposals)


def agreement(liked: Sequence[Sequence[Choice]], audited: Sequence[Sequence[Choice]]) -> float | None:
    """Share of the states at which the second scores prefer the first's favourite to the first's last (equal counts
    half); None where all scores of every state are equal."""
    found = []
    for choice, other in zip((c for cs in liked for c in cs), (c for cs in audited for c in cs)):
        best, worst = int(np.argmax(choice.scores)), int(np.argmin(choice.scores))
        if choice.scores[best] > choice.scores[worst]:
            found.append((np.sign(other.scores[best] - other.scores[worst]) + 1) / 2)
    return float(np.mean(found)) if found else None


def _means(choices: Sequence[Sequence[Choice]]) -> list[float]:
    return [float(np.mean([choice.scores for choice in of_episode])) for of_episode in choices]


@dataclass(frozen=True)
class _DrawnColumns(Columns):
    times: Values
    """How often an action was drawn, on its tokens."""


def _row(policy: Checkpoint, episode: Episode, choices: Sequence[Choice]) -> Row[_DrawnColumns]:
    """The episode with the distinct actions drawn as branches."""
    rendered = policy.renderer.episode(episode.turns)
    branches = [
        (rendered.action_starts[choice.turn], tokens, _DrawnColumns(np.full(len(tokens), times, np.float32)))
        for choice in choices
        for tokens, times in Counter(proposal.tokens for proposal in choice.proposals).items()
    ]
    return tree_row(rendered.input_ids, _DrawnColumns.zeros(len(rendered.input_ids)), branches)
