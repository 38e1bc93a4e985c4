"""Actions a policy would take at every turn of episodes already played: one tree, all turns at once.

The episodes are read once. Every decoding step is then one call of the model for the branches of all turns of all
episodes. Samples of one turn share a branch until they part. With constrained decoding a branch walks the trie of the
turn's admissible commands, and tokens without an alternative are not decoded but read together with the next ones.

Shapes: ``R`` lines, ``C`` tokens allowed of the line that has most, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch

from agentprm_core.policy.decoding import allowed_logits
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.prompt import Rendered
from agentprm_core.policy.trie import CommandTries, Edge, Leaf, Node
from agentprm_core.seeding import uniforms
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
class _Line:
    """A branch being written: the samples of one turn that agree so far."""

    row: int
    turn: int
    sees: int
    samples: tuple[int, ...]
    node: Node | Leaf | None
    """What may come next; None where everything may."""
    tokens: tuple[int, ...]
    branch: int
    read: int = 0
    """How many of the tokens the tree has read as this branch."""
    log_prob: float = 0.0
    depth: int = 0


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
        self.tries = CommandTries(policy)

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
        self._how, self._visited, self._branches = proposer, visited, count()
        self._found = [[[None] * samples if t >= v.episode.start else [] for t in range(v.episode.length)]
                       for v in visited]  # fmt: skip
        self._roots = [root for row in range(len(visited)) for root in self._roots_of(row, tuple(range(samples)))]

    def run(self) -> list[list[list[Proposal]]]:
        rows = [Row(np.array(v.rendered.input_ids, dtype=np.int32)) for v in self._visited]
        open_now = [line for line in self._roots if not line.tokens]
        marks = [(line.row, line.sees - 1) for line in open_now]
        tree = GrowingTree(self._how.policy.model, rows, marks)
        lines = [line for line in self._roots if line.tokens] + self._advance(open_now, tree.first_logits)
        while lines:
            logits_RV = tree.grow([Growth(x.row, x.branch, x.sees, x.read, x.tokens[x.read :]) for x in lines])
            lines = self._advance(lines, logits_RV)
        return self._found

    def _roots_of(self, row: int, samples: tuple[int, ...]) -> list[_Line]:
        """A line for each turn; a turn with a single admissible command is answered at once."""
        visited, lines = self._visited[row], []
        for turn in range(visited.episode.start, visited.episode.length):
            admissible = visited.episode.turns[turn].admissible
            edge = self._how.tries.speakable(admissible).root if self._how.constrained else Edge((), None)
            sees = visited.rendered.action_starts[turn]
            line = _Line(row, turn, sees, samples, edge.end, edge.forced, next(self._branches))
            if isinstance(edge.end, Leaf):
                self._answer(line, Proposal(edge.end.command, "", edge.forced, 0.0))
            else:
                lines.append(line)
        return lines

    def _answer(self, line: _Line, proposal: Proposal) -> None:
        for k in line.samples:
            self._found[line.row][line.turn][k] = proposal

    def _advance(self, lines: Sequence[_Line], logits_RV: torch.Tensor) -> list[_Line]:
        """Draw every sample's next token and answer whole actions; the lines that go on, parted where they differ."""
        if not lines:
            return []
        going: list[_Line] = []
        picks, log_probs = self._draw(lines, logits_RV)
        begin = 0
        for line in lines:
            ways: dict[int, list[int]] = {}
            for k in range(len(line.samples)):
                ways.setdefault(picks[begin + k], []).append(k)
            for number, (pick, members) in enumerate(ways.items()):
                after = self._follow(line, pick, members, log_probs[begin + members[0]], number == 0)
                whole = self._whole(after)
                if whole:
                    self._answer(after, whole)
                else:
                    going.append(after)
            begin += len(line.samples)
        return going

    def _follow(self, line: _Line, pick: int, members: Sequence[int], log_prob: float, same_branch: bool) -> _Line:
        """The line after ``pick``. The first way goes on with the branch; another reads its few tokens anew."""
        token = pick if line.node is None else line.node.tokens[pick]
        edge = Edge((), None) if line.node is None else line.node.edge(token)
        return _Line(
            line.row,
            line.turn,
            line.sees,
            tuple(line.samples[k] for k in members),
            edge.end,
            (*line.tokens, token, *edge.forced),
            line.branch if same_branch else next(self._branches),
            len(line.tokens) if same_branch else 0,
            line.log_prob + log_prob,
            line.depth + 1,
        )

    def _whole(self, line: _Line) -> Proposal | None:
        """The action, if ``line`` has come to its end."""
        if isinstance(line.node, Leaf):
            return Proposal(line.node.command, "", line.tokens, line.log_prob)
        ended = line.tokens[-1] == self._how.policy.renderer.stop_token
        if line.node is None and (ended or len(line.tokens) == self._how.max_action_tokens):
            reason, action = self._how.policy.renderer.parse(line.tokens)
            return Proposal(action, reason, line.tokens, line.log_prob, ended)
        return None

    def _draw(self, lines: Sequence[_Line], logits_RV: torch.Tensor) -> tuple[list[int], list[float]]:
        """For each sample of each line the index drawn among what is allowed, and its log-probability."""
        logits = allowed_logits([line.node.tokens for line in lines], logits_RV) if self._how.constrained else logits_RV
        rows = torch.tensor([r for r, line in enumerate(lines) for _ in line.samples], device=logits.device)
        keys = [(*self._visited[line.row].seed, line.turn, line.depth, k) for line in lines for k in line.samples]
        uniform = torch.from_numpy(uniforms(keys)).to(logits.device)
        # float64, so that no last entry is out of reach
        cumulated = (logits.double() / self._how.temperature).softmax(-1).cumsum(-1)[rows]
        picks = (cumulated <= uniform[:, None] * cumulated[:, -1:]).sum(-1).clamp_(max=logits.shape[-1] - 1)
        log_probs = logits.log_softmax(-1)[rows].gather(1, picks[:, None])[:, 0]
        return picks.tolist(), log_probs.tolist()
