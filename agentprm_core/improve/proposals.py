"""Actions a policy would take at every turn of episodes already played: one tree, all turns at once.

The episodes are read once. Every decoding step is then one call of the model for the branches of all turns of all
episodes. Samples of one turn share a branch until they part. How an action goes on is
:mod:`agentprm_core.policy.decoding`'s and what is drawn :mod:`agentprm_core.policy.drawing`'s, as in playing. The loop
is another than the player's: whole episodes are there at once, so all turns are drawn together, and nothing is kept
between calls that the training of the weights would outdate. The player's loop over the same turns takes half as long
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import cast

import numpy as np
import torch

from agentprm_core.policy.decoding import Constrained, Free, Line, Said
from agentprm_core.policy.drawing import draw
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.prompt import Rendered
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.growing import GrowingTree, Growth
from agentprm_core.training.packing import Row, cut
from agentprm_core.types import Episode


@dataclass(frozen=True, slots=True)
class Proposal:
    """An action drawn at one turn."""

    action: str
    reason: str
    tokens: tuple[int, ...]
    """Up to and with the stop token, if it ended."""
    log_prob: float
    """At temperature 1, of the tokens decided among those that decoding allowed."""
    ended: bool = True
    """Whether it wrote the stop token within its limit."""


@dataclass(frozen=True, slots=True)
class _Visited:
    """An episode whose turns are visited again."""

    episode: Episode
    rendered: Rendered
    seed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Branch:
    """A line of a turn that grows in the tree."""

    row: int
    turn: int
    sees: int
    line: Line
    tokens: tuple[int, ...]
    """Of the action so far."""
    number: int
    read: int = 0
    """How many of the tokens the tree has read as this branch."""


class Proposer:
    """Draws actions from one policy, with the weights it has at each call."""

    def __init__(
        self, policy: Checkpoint, *, temperature: float, constrained: bool, max_action_tokens: int, batch_tokens: int
    ) -> None:
        """``batch_tokens``: tokens of episodes read together. Raises ValueError for a ``temperature`` not above 0."""
        if temperature <= 0:
            raise ValueError(f"temperature {temperature} is not above 0")
        self.policy, self.temperature, self.constrained = policy, temperature, constrained
        self.max_action_tokens, self._batch_tokens = max_action_tokens, batch_tokens
        # a branch of the tree cannot be cut back: a guess that fails would be read for nothing, and all before it again
        self.decoding = (Constrained if constrained else Free)(policy, max_action_tokens, guessing=False)

    @torch.inference_mode()
    def propose(
        self, episodes: Sequence[Episode], samples: int, seeds: Sequence[tuple[int, ...]]
    ) -> list[list[list[Proposal]]]:
        """By episode and turn, ``samples`` actions in the order drawn; none at turns before ``Episode.start``.

        The draws depend on the episode's seed (a tuple of integers, all of one length), the turn and the weights, not
        on what else is in the call.
        """
        rendered = [self.policy.renderer.episode(episode.turns) for episode in episodes]
        found: list[list[list[Proposal]]] = []
        training = self.policy.model.training
        self.policy.model.eval()
        with packed_attention(self.policy.model):
            for chunk in cut(range(len(episodes)), [len(r.input_ids) for r in rendered], self._batch_tokens):
                visited = [_Visited(episodes[i], rendered[i], seeds[i]) for i in chunk]
                found += _Drawing(self, visited, samples).run()
        self.policy.model.train(training)
        return found


class _Drawing:
    """One tree of episodes, from their turns' first tokens to whole actions."""

    def __init__(self, proposer: Proposer, visited: Sequence[_Visited], samples: int) -> None:
        self._how, self._visited, self._numbers = proposer, visited, count()
        unanswered = cast("list[Proposal]", [None] * samples)
        self._found = [[[*unanswered] if t >= v.episode.start else [] for t in range(v.episode.length)]
                       for v in visited]  # fmt: skip
        self._roots = [root for row in range(len(visited)) for root in self._roots_of(row, samples)]

    def run(self) -> list[list[list[Proposal]]]:
        rows = [Row(np.array(v.rendered.input_ids, dtype=np.int32)) for v in self._visited]
        open_now = [root for root in self._roots if not root.tokens]
        marks = [(root.row, root.sees - 1) for root in open_now]
        tree = GrowingTree(self._how.policy.model, rows, marks)
        going = [root for root in self._roots if root.tokens] + self._advance(open_now, tree.first_logits)
        while going:
            logits_RV = tree.grow([Growth(x.row, x.number, x.sees, x.read, x.tokens[x.read :]) for x in going])
            going = self._advance(going, logits_RV)
        return self._found

    def _roots_of(self, row: int, samples: int) -> list[_Branch]:
        """A branch for each turn; a turn with a single admissible command is answered at once."""
        visited, roots = self._visited[row], []
        for turn in range(visited.episode.start, visited.episode.length):
            first = self._how.decoding.start(visited.episode.turns[turn].admissible, samples)
            if isinstance(first, Said):
                self._answer(row, turn, first, ())
            else:
                sees = visited.rendered.action_starts[turn]
                roots.append(_Branch(row, turn, sees, first, first.feed, next(self._numbers)))
        return roots

    def _answer(self, row: int, turn: int, said: Said, before: tuple[int, ...]) -> None:
        tokens = (*before[: said.keep], *said.rest)
        ended = tokens[-1] == self._how.policy.renderer.stop_token
        action, reason, log_prob, _ = said.decision
        for k in said.samples:
            self._found[row][turn][k] = Proposal(action, reason, tokens, log_prob, ended)

    def _advance(self, branches: Sequence[_Branch], logits_RV: torch.Tensor) -> list[_Branch]:
        """Draw every sample's next token and answer whole actions; the branches that go on, parted where they differ:
        the first goes on with the branch, another reads its few tokens anew."""
        if not branches:
            return []
        lines = [branch.line for branch in branches]
        allowed = [allowed for line in lines for allowed in line.way.allowed(line)]
        keys = [(*self._visited[branch.row].seed, branch.turn, branch.line.depth) for branch in branches]
        draws = zip(*draw(logits_RV, allowed, keys, [line.samples for line in lines], self._how.temperature))
        going: list[_Branch] = []
        for branch in branches:
            progress = branch.line.way.advance(branch.line, branch.tokens, draws)
            for said in progress.said:
                self._answer(branch.row, branch.turn, said, branch.tokens)
            for nth, line in enumerate(progress.lines):
                tokens = (*branch.tokens, *line.feed)
                number, read = (next(self._numbers), 0) if nth else (branch.number, len(branch.tokens))
                going.append(_Branch(branch.row, branch.turn, branch.sees, line, tokens, number, read))
        return going
