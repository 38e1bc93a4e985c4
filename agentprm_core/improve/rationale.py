"""Post-hoc rationalisation (paper A): actions that came without a reason get one from the policy that shall learn them.

At every turn the policy reads the history, is told the action that was taken, and writes why (greedily). Trained on
under the normal prompt, which does not tell the action, the reason comes to lead to it.

All turns of an episode are one tree: the question is a branch after the turn's observation, and a decoding step is one
call for all turns of all episodes read together. So a turn's reason does not see those of the turns before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.prompt import Renderer
from agentprm_core.training.attention import packed_attention
from agentprm_core.training.growing import GrowingTree, Growth
from agentprm_core.training.packing import Row, cut
from agentprm_core.types import Episode


@dataclass(slots=True)
class _Draft:
    """A reason being written."""

    row: int
    turn: int
    sees: int
    tokens: list[int]
    """The question's, then the reason's."""
    question: int
    """How many are the question's."""
    read: int = 0


@torch.inference_mode()
def rationalised(
    policy: Checkpoint, episodes: Sequence[Episode], *, max_tokens: int, batch_tokens: int
) -> list[Episode]:
    """The episodes with a reason, of up to ``max_tokens`` tokens, at each turn from ``Episode.start`` on.

    ``batch_tokens``: tokens of episodes read together. Raises ValueError for a policy that writes no reasons.
    """
    rows = [np.array(policy.renderer.episode(episode.turns).input_ids, dtype=np.int32) for episode in episodes]
    found: list[Episode] = []
    training = policy.model.training
    policy.model.eval()
    with packed_attention(policy.model):
        for chunk in cut(range(len(rows)), [len(row) for row in rows], batch_tokens):
            tree = GrowingTree(policy.model, [Row(rows[i]) for i in chunk], [(0, 0)])
            found += _written(tree, policy.renderer, [episodes[i] for i in chunk], max_tokens)
    policy.model.train(training)
    return found


def _written(tree: GrowingTree, renderer: Renderer, episodes: Sequence[Episode], max_tokens: int) -> list[Episode]:
    """These episodes, the rows of ``tree``, with their reasons."""
    drafts = [draft for row, episode in enumerate(episodes) for draft in _drafts(renderer, row, episode)]
    going = drafts
    while going:
        # a turn's number in its episode names its branch
        logits_RV = tree.grow([Growth(d.row, d.turn, d.sees, d.read, d.tokens[d.read :]) for d in going])
        for draft, token in zip(going, logits_RV.argmax(-1).tolist()):
            draft.read = len(draft.tokens)
            draft.tokens.append(token)
        going = [draft for draft in going if not _whole(renderer, draft, max_tokens)]
    turns = [list(episode.turns) for episode in episodes]
    for draft in drafts:
        reason = renderer.reason(draft.tokens[draft.question :])
        turns[draft.row][draft.turn] = turns[draft.row][draft.turn]._replace(reason=reason)
    return [replace(episode, turns=tuple(its_turns)) for episode, its_turns in zip(episodes, turns)]


def _drafts(renderer: Renderer, row: int, episode: Episode) -> list[_Draft]:
    starts = renderer.episode(episode.turns).action_starts
    drafts = []
    for turn in range(episode.start, episode.length):
        question = renderer.question(episode.turns[turn].action)
        # the question goes on with what the world said, before the mark after which the policy writes
        drafts.append(_Draft(row, turn, starts[turn] - len(renderer.before_action), list(question), len(question)))
    return drafts


def _whole(renderer: Renderer, draft: _Draft, max_tokens: int) -> bool:
    written = draft.tokens[draft.question :]
    return written[-1] == renderer.stop_token or len(written) == max_tokens or renderer.names_an_action(written)
