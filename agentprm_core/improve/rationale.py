"""Post-hoc rationalisation (paper A): actions that came without a reason get one from the policy that shall learn them.

At every turn the policy reads the history, is told the action that was taken, and writes why (greedily). Trained on
under the normal prompt, which does not tell the action, the reason comes to lead to it.

A turn's question follows what the world said there and is forgotten when it is answered, so a reason does not see those
of the turns before it. Many episodes are asked at once, one cache slot each, and an episode's tokens are read once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import replace

import torch

from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.prompt import Renderer
from agentprm_core.policy.runner import CachedModel, Extension, slots_within
from agentprm_core.types import Episode

Reading = Generator[tuple[int, list[int]], int, list[str]]
"""Says how many tokens of the slot to keep and what to read after them, is sent the likeliest next token, and ends with
a reason for each turn."""


@torch.inference_mode()
def rationalised(
    policy: Checkpoint, episodes: Sequence[Episode], *, max_tokens: int, slots: int, cache_mb: float
) -> list[Episode]:
    """The episodes with a reason, of up to ``max_tokens`` tokens, at each turn from ``Episode.start`` on. A turn at
    which the model's context has no room for the question has an empty one.

    ``slots``: episodes read at once; fewer where the cache would take more than ``cache_mb`` MiB. Raises ValueError for
    a policy that writes no reasons, and for a cache that does not hold one episode.
    """
    asked = [_questions(policy.renderer, episode) for episode in episodes]
    rendered = [policy.renderer.episode(episode.turns) for episode in episodes]
    most = max((len(question) for of in asked for question in of), default=0) + max_tokens
    longest = max((len(r.input_ids) for r in rendered), default=0) + most
    context = min(longest, policy.model.config.max_position_embeddings)
    slots = min(slots, max(1, len(episodes)), slots_within(policy.model, context=context, memory_mb=cache_mb))
    training = policy.model.training
    policy.model.eval()
    runner = CachedModel(policy.model, slots=slots, context=context)
    waiting = deque(
        (number, _asking(policy.renderer, r.input_ids, r.action_starts, questions, max_tokens, context))
        for number, (r, questions) in enumerate(zip(rendered, asked))
    )
    reasons = _answered(runner, waiting, slots)
    policy.model.train(training)
    return [_with(episode, reasons[number]) for number, episode in enumerate(episodes)]


def _questions(renderer: Renderer, episode: Episode) -> list[list[int]]:
    """Of each turn from ``start`` on."""
    return [list(renderer.question(turn.action)) for turn in episode.turns[episode.start :]]


def _asking(
    renderer: Renderer,
    ids: Sequence[int],
    starts: Sequence[int],
    questions: Sequence[list[int]],
    max_tokens: int,
    context: int,
) -> Reading:
    """All questions of one episode, of tokens ``ids`` with actions from ``starts`` on; those of its last turns."""
    known, reasons = 0, []
    for start, question in zip(starts[len(starts) - len(questions) :], questions):
        # the question goes on with what the world said, before the mark after which the policy writes
        end = start - len(renderer.before_action)
        written: list[int] = []
        room = min(max_tokens, context - end - len(question))
        if room > 0:
            written.append((yield known, [*ids[known:end], *question]))
            known = end
        while written and not _whole(renderer, written, room):
            written.append((yield end + len(question) + len(written) - 1, written[-1:]))
        reasons.append(renderer.reason(written))
    return reasons


def _answered(runner: CachedModel, waiting: deque[tuple[int, Reading]], slots: int) -> dict[int, list[str]]:
    """{number: its reasons}, as many at once as there are slots."""
    reasons: dict[int, list[str]] = {}
    going: list[tuple[int, int, Reading, tuple[int, list[int]]]] = []

    def go_on(slot: int, number: int, reading: Reading, token: int | None) -> None:
        try:
            wanted = next(reading) if token is None else reading.send(token)
            going.append((slot, number, reading, wanted))
        except StopIteration as end:
            reasons[number] = end.value
            runner.cache.close(slot)

    while waiting or going:
        while waiting and len(going) < slots:
            number, reading = waiting.popleft()
            go_on(runner.cache.open(), number, reading, None)
        if not going:  # the last ones had nothing to be asked
            break
        for slot, _, _, (keep, _) in going:
            runner.cache.cut(slot, keep)
        said = runner.head(runner.extend([Extension(slot, tokens) for slot, _, _, (_, tokens) in going]))
        answered, going[:] = list(going), []
        for (slot, number, reading, _), token in zip(answered, said.argmax(-1).tolist()):
            go_on(slot, number, reading, token)
    return reasons


def _whole(renderer: Renderer, written: Sequence[int], most: int) -> bool:
    return written[-1] == renderer.stop_token or len(written) == most or renderer.names_an_action(list(written))


def _with(episode: Episode, reasons: Sequence[str]) -> Episode:
    turns, said = list(episode.turns), iter(reasons)
    for turn in range(episode.start, episode.length):
        turns[turn] = turns[turn]._replace(reason=next(said))
    return replace(episode, turns=tuple(turns))
