"""Scores of candidate actions in growing conversations: what a search asks of a process reward model.

The PRM keeps its own cache of every conversation. The candidates of one state are read as branches after the history,
those of many states in one call, and their scores are taken at the actions' end marks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

import torch

from agentprm_core.policy.conversations import Conversation, Conversations
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.runner import Extension
from agentprm_core.policy.sampler import SPELT, Decision
from agentprm_core.prm.model import likelihood_weight
from agentprm_core.prm.rows import action_tokens

BRANCH_ROOM = 128
"""Tokens of candidates read in one go for a state; more are read in rounds."""
_UNREAD = 0
"""A history's own token and parent: nobody asks how likely it was."""


class Scorer(Protocol):
    """Who tells good actions from bad: follows conversations as a player does, and scores what might come next."""

    def open(self, seed: int) -> int:
        """A seat for a new conversation; ``seed`` is its player's."""
        ...

    def fork(self, seat: int) -> int:
        """A second seat with the same past."""
        ...

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        """Append an observation; False where the context has no room for it and an action."""
        ...

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        """Append the action that was played."""
        ...

    def score(self, asked: Sequence[tuple[int, Sequence[Decision]]]) -> list[list[float]]:
        """For each seat the scores of its candidates, higher is better."""
        ...

    def close(self, seat: int) -> int:
        """Give the seat back; returns the tokens read for it."""
        ...


@dataclass(slots=True)
class _Round:
    """What is left to score of one seat."""

    talk: Conversation
    branches: list[tuple[int, ...]]
    scores: list[float]


class PrmScorer:
    """Q_φ(s, a) = σ(w·h + κ log π_φ(a | s)) in (0, 1) of a PRM (:mod:`agentprm_core.prm.model`), for up to ``slots``
    conversations of ``context`` tokens. Or one of its two terms alone."""

    def __init__(
        self,
        prm: Checkpoint,
        *,
        slots: int,
        context: int,
        max_action_tokens: int,
        head: bool = True,
        likelihood: float | None = None,
    ) -> None:
        """``head``: whether the value head w·h counts. ``likelihood``: κ in the place of the PRM's own. Without the
        head the model may also be a policy, which has none."""
        self._room = max(BRANCH_ROOM, max_action_tokens + 1)
        self._talks = Conversations(prm, slots=slots, context=context, branch_room=self._room)
        self._reserve, self._head = max_action_tokens, head
        self._likelihood = likelihood_weight(prm.model) if likelihood is None else likelihood
        self._spell = lru_cache(maxsize=SPELT)(partial(action_tokens, prm.renderer))
        self._open: dict[int, Conversation] = {}

    @property
    def tokens_read(self) -> int:
        """Tokens the PRM has read so far."""
        return self._talks.runner.tokens_read

    def open(self, seed: int) -> int:
        return self._keep(self._talks.open())

    def fork(self, seat: int) -> int:
        return self._keep(self._talks.fork(self._open[seat]))

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        return self._talks.see(self._open[seat], observation, admissible, self._reserve)

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        self._talks.tell(self._open[seat], action, reason)

    def close(self, seat: int) -> int:
        talk = self._open.pop(seat)
        self._talks.close(talk)
        return talk.read

    def score(self, asked: Sequence[tuple[int, Sequence[Decision]]]) -> list[list[float]]:
        """Sigmoid of the PRM's logit of each candidate."""
        return self._told(asked, torch.sigmoid)

    def logits(self, asked: Sequence[tuple[int, Sequence[Decision]]]) -> list[list[float]]:
        """The logits themselves."""
        return self._told(asked, torch.clone)

    def _told(
        self, asked: Sequence[tuple[int, Sequence[Decision]]], told: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[list[float]]:
        """What ``told`` makes of the logits."""
        rounds = [
            _Round(self._open[seat], [self._within(self._open[seat], candidate) for candidate in candidates], [])
            for seat, candidates in asked
        ]
        left = [one for one in rounds if one.branches]
        while left:
            reading = {one.talk for one in left}
            self._read([one for one in left if one.talk.known or self._talks.share(one.talk, reading)], told)
            left = [one for one in left if one.branches]
        return [one.scores for one in rounds]

    def _within(self, talk: Conversation, candidate: Decision) -> tuple[int, ...]:
        """As many of its tokens as the context has room for. A reply without the form that was asked for can be longer
        spelt out than it was written."""
        return self._spell(candidate.action, candidate.reason)[: self._talks.context - len(talk.tokens)]

    def _read(self, rounds: list[_Round], told: Callable[[torch.Tensor], torch.Tensor]) -> None:
        extensions: list[Extension] = []
        for one in rounds:
            now = self._fitting(one.branches)
            whole = self._likelihood > 0  # then what its tokens are predicted from is read too
            extensions.append(self._talks.extension(one.talk, 0, (), reads=int(whole), branches=now, throughout=whole))
            one.branches = one.branches[len(now) :]
        scores = iter(told(self._logits(extensions)).tolist())
        for one, extension in zip(rounds, extensions):
            one.scores += [next(scores) for _ in extension.branches]

    @torch.inference_mode()
    def _logits(self, extensions: list[Extension]) -> torch.Tensor:
        """Of all branches, in order."""
        runner = self._talks.runner
        hidden_RW = runner.extend(extensions)
        if not self._likelihood:
            return runner.head(hidden_RW)[:, 0]
        # read were, of each extension in turn, the last token of its history and its branches (B) end to end
        ids, parents, ends, spans = [], [], [], []
        for extension in extensions:
            history = len(ids)
            ids.append(_UNREAD)
            parents.append(_UNREAD)
            for branch in extension.branches:
                parents += (history, *range(len(ids), len(ids) + len(branch) - 1))
                ids += branch
                ends.append(len(ids) - 1)
                spans.append(len(branch))
        ids, parents, end_B, span_B = (torch.tensor(x, device=runner.device) for x in (ids, parents, ends, spans))
        spoken_B = self._likelihood * runner.log_likelihood(hidden_RW, ids, parents, end_B, span_B)
        return runner.head(hidden_RW.index_select(0, end_B))[:, 0] + spoken_B if self._head else spoken_B

    def _fitting(self, branches: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """As many as there is room for, at least one."""
        room, fitting = self._room, 1
        for number, branch in enumerate(branches):
            room -= len(branch)
            if room < 0:
                break
            fitting = number + 1
        return branches[:fitting]

    def _keep(self, talk: Conversation) -> int:
        self._open[talk.slot] = talk
        return talk.slot
