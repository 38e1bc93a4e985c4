"""What a policy and process reward models say of the actions at each turn of an episode: what one looks at.

The episode may be anybody's: played now, or read from a table. Its history is what the models read. At every turn the
candidates are the admissible commands that can be done as they stand, the action that was taken, and those that the
caller adds.

Shapes: ``P`` tokens of candidates, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat

import numpy as np
import torch

from agentprm_core.policy.conversations import common_prefix
from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.trie import CommandTries, Edge, Leaf, Node, build_trie, spelling
from agentprm_core.prm.rows import action_tokens
from agentprm_core.prm.score import score_actions
from agentprm_core.training.attention import logits_of, packed_attention
from agentprm_core.training.columns import NOTHING
from agentprm_core.training.packing import cut, pack
from agentprm_core.training.tree import tree_row
from agentprm_core.types import Episode, Turn
from agentprm_core.worlds.base import listed_commands

BRANCH_TOKENS = 1024
"""Of candidates that are read beside an episode at once: attention grows with their square."""
_LOGITS = 1 << 26
"""Numbers that the probabilities of one reading may take."""
_SCORING_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Candidate:
    """An action that could be done at one turn."""

    action: str
    probability: float
    """Of the policy. Constrained: of drawing it among the admissible commands, as the sampler draws; these and the
    templates add up to 1. Free: of writing exactly this action. NaN where no policy was asked."""
    scores: tuple[float, ...]
    """Q of each PRM, in their order."""
    taken: bool


def opinions(
    policy: Checkpoint | None,
    prms: Sequence[Checkpoint],
    episode: Episode,
    *,
    constrained: bool,
    more: Sequence[Sequence[str]] = (),
    scored: int | None = None,
) -> list[tuple[Candidate, ...]]:
    """By turn the candidates, the policy's likeliest first.

    Args:
        constrained: whether the policy plays among the admissible commands only.
        more: by turn, other actions to be judged too.
        scored: how many of the likeliest are shown to the PRMs, with the action taken and those of ``more``; None: all.
            The others are left out.
    """
    extra = more or [()] * episode.length
    tried = [_tried(turn.action, turn.admissible, added) for turn, added in zip(episode.turns, extra, strict=True)]
    said = probabilities(policy, episode, tried, constrained) if policy else [[float("nan")] * len(t) for t in tried]
    chosen = []
    for turn, added, actions, share in zip(episode.turns, extra, tried, said, strict=True):
        order = sorted(range(len(actions)), key=lambda i: (-np.nan_to_num(share[i]), i))
        asked = set(order[:scored]) | {i for i, action in enumerate(actions) if action in (turn.action, *added)}
        chosen.append([(actions[i], share[i]) for i in order if i in asked])
    scores = [list(_scores(prm, episode, [[action for action, _ in c] for c in chosen])) for prm in prms]
    return [
        tuple(
            Candidate(action, float(share), tuple(float(of[t][i]) for of in scores), action == turn.action)
            for i, (action, share) in enumerate(chosen[t])
        )
        for t, turn in enumerate(episode.turns)
    ]


def probabilities(
    policy: Checkpoint, episode: Episode, tried: Sequence[Sequence[str]], constrained: bool
) -> list[list[float]]:
    """By turn the policy's probability of each action of ``tried`` at the episode's state, at temperature 1. A reason
    that was written there is read before each of them.

    Constrained, a token is drawn among those with which an admissible command goes on (:mod:`.policy.trie`); an action
    that is none, or that has an unknown token, is never drawn. Any token may begin the free text of a template or be in
    it. Where nothing is listed, any may be drawn anywhere.
    """
    spelt = [
        [action_tokens(policy.renderer, action, turn.reason) for action in actions]
        for turn, actions in zip(episode.turns, tried, strict=True)
    ]
    found: list[list[float]] = []
    for first, end in _portions(spelt, _said(policy, episode), policy.model.config.vocab_size):
        found += _read(policy, episode, spelt, first, end, constrained)
    return found


def _tried(taken: str, admissible: tuple[str, ...], added: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*listed_commands(admissible), taken, *added]))


def _said(policy: Checkpoint, episode: Episode) -> list[tuple[int, ...]]:
    """By turn the tokens of what was done."""
    return [action_tokens(policy.renderer, turn.action, turn.reason) for turn in episode.turns]


def _portions(
    spelt: Sequence[Sequence[tuple[int, ...]]], said: Sequence[tuple[int, ...]], vocabulary: int
) -> Iterator[tuple[int, int]]:
    """(first, end) of turns that are read together."""
    lengths = [
        len(own) + sum(len(tokens) - common_prefix(tokens, own) for tokens in of_turn)
        for own, of_turn in zip(said, spelt)
    ]
    most = max(1, min(BRANCH_TOKENS, _LOGITS // vocabulary))
    for turns in cut(range(len(spelt)), lengths, most):
        yield turns[0], turns[-1] + 1


@torch.inference_mode()
def _read(
    policy: Checkpoint,
    episode: Episode,
    spelt: Sequence[Sequence[tuple[int, ...]]],
    first: int,
    end: int,
    constrained: bool,
) -> list[list[float]]:
    """Of turns ``first`` to ``end``, in one pass over the episode's first ``end`` turns. What an action has in common
    with the one that was done, as the reason before both, is read once."""
    rendered, said = policy.renderer.episode(episode.turns[:end]), _said(policy, episode)
    trunk = rendered.input_ids[: rendered.action_ends[-1] + 1]
    branches = [
        (rendered.action_starts[t] + same, tokens[same:], NOTHING)
        for t in range(first, end)
        for tokens in spelt[t]
        if (same := common_prefix(tokens, said[t])) < len(tokens)
    ]
    row = tree_row(trunk, NOTHING, branches)
    batch = pack([row]).to(policy.model.device)
    where_N = torch.arange(len(row), device=policy.model.device) >= len(trunk)
    for t in range(first, end):
        where_N[rendered.action_starts[t] : rendered.action_ends[t] + 1] = True
    with packed_attention(policy.model):
        logits_PV = logits_of(policy.model, batch, where_N).double().cpu().numpy()
    tries, rows, found = CommandTries(policy), iter(logits_PV), []
    of_said = [list(islice(rows, len(own))) for own in said[first:end]]
    for turn, own, own_rows, of_turn in zip(episode.turns[first:end], said[first:end], of_said, spelt[first:end]):
        closed = constrained and bool(turn.admissible)
        root = _root(tries, policy, turn) if closed else None
        each = [chain(own_rows[: common_prefix(tokens, own)], rows) for tokens in of_turn]
        allowed = (_allowed(root, tokens) if closed else repeat(None) for tokens in of_turn)
        found.append([float(np.exp(_log_probability(*three))) for three in zip(of_turn, each, allowed)])
    return found


def _root(tries: CommandTries, policy: Checkpoint, turn: Turn) -> Edge | None:
    """The tree of the turn's admissible commands; None where none can be written. Behind a reason that was written
    there it has no templates: nothing is drawn so."""
    if not turn.reason:
        trie = tries.find(turn.admissible)
        return trie and trie.root
    listed, unknown = listed_commands(turn.admissible), policy.tokenizer.unk_token_id
    spelt = [(action_tokens(policy.renderer, command, turn.reason), command) for command in listed]
    known = [spelling(tokens, command) for tokens, command in spelt if unknown not in tokens]
    return build_trie(known) if known else None


def _allowed(root: Edge | None, tokens: Sequence[int]) -> Iterator[Sequence[int] | None]:
    """At each token those that may be drawn there; None: any. Nothing once the action cannot be drawn any more."""
    edge = root
    forced = list(root.forced) if root else []
    for token in tokens:
        choice: Sequence[int] | None
        if forced:
            choice = [forced.pop(0)]
        elif edge is None or isinstance(edge.end, Leaf):
            choice = []
        else:
            choice = edge.end.tokens if isinstance(edge.end, Node) and not edge.end.opens else None
            edge = edge.end.edge(token) if choice is None or token in choice else None
            forced = list(edge.forced) if edge else []
        yield choice
        if choice is not None and token not in choice:
            edge, forced = None, []


def _log_probability(
    tokens: tuple[int, ...], rows: Iterator[np.ndarray], allowed: Iterator[Sequence[int] | None]
) -> float:
    """Nats. Takes a row of logits for each token, also where it is sure by then that the action cannot be drawn."""
    total = 0.0
    for token, choice in zip(tokens, allowed):
        logits_V = next(rows)
        if choice is None:
            total += logits_V[token] - np.logaddexp.reduce(logits_V)
        elif token in choice:
            total += logits_V[token] - np.logaddexp.reduce(logits_V[list(choice)])
        else:
            total = -np.inf
    return total


def _scores(prm: Checkpoint, episode: Episode, actions: Sequence[Sequence[str]]) -> Iterator[np.ndarray]:
    """By turn Q_φ of its actions."""
    lengths = [sum(len(action_tokens(prm.renderer, a)) for a in of_turn) for of_turn in actions]
    for turns in cut(range(len(actions)), lengths, BRANCH_TOKENS):
        asked = [(t, action, episode.turns[t].reason) for t in turns for action in actions[t]]
        (q_M,) = score_actions(prm.model, prm.renderer, [episode], [asked], _SCORING_TOKENS)
        yield from np.split(q_M, np.cumsum([len(actions[t]) for t in turns])[:-1])
