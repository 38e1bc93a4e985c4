"""Many growing conversations over one cached model: what has been said, what the model has read of it, what is shared.

A conversation is only ever appended to. Its tokens are read when a decision or a score is asked for, all that have come
up since in one go; conversations that begin alike (episodes of one game, branches of one history) read the beginning
once. Forgotten tokens (a sampled action that was not played) are cut off the cache, not read again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from agentprm_core.policy.models import Checkpoint
from agentprm_core.policy.runner import CachedModel, Extension


@dataclass(slots=True, eq=False)
class Conversation:
    slot: int
    tokens: list[int] = field(default_factory=list)
    """What was said."""
    known: int = 0
    """How many of ``tokens`` the cache holds."""
    path: list[int] = field(default_factory=list)
    """Tokens that the cache holds after those: an action being decoded."""
    opening: tuple[int, ...] = ()
    """The first observation."""
    read: int = 0
    """Tokens the model has read for this conversation."""

    @property
    def pending(self) -> list[int]:
        return self.tokens[self.known :]


class Conversations:
    """Up to ``slots`` conversations of up to ``context`` tokens with one model."""

    def __init__(self, policy: Checkpoint, *, slots: int, context: int, branch_room: int = 0) -> None:
        self.renderer, self.context = policy.renderer, context
        self.runner = CachedModel(policy.model, slots=slots, context=context, branch_room=branch_room)
        self._openings: dict[tuple[int, ...], list[Conversation]] = {}

    def open(self) -> Conversation:
        return Conversation(self.runner.cache.open())

    def close(self, talk: Conversation) -> None:
        self.runner.cache.close(talk.slot)
        if talk.opening:
            alike = self._openings[talk.opening]
            alike.remove(talk)
            if not alike:
                del self._openings[talk.opening]

    def fork(self, talk: Conversation) -> Conversation:
        """A second conversation with the same past, read so far as this one is."""
        twin = self.open()
        self._begin(twin, talk.opening)
        twin.tokens, twin.known = list(talk.tokens), talk.known
        self.runner.cache.copy(talk.slot, twin.slot, talk.known)
        return twin

    def see(self, talk: Conversation, observation: str, admissible: tuple[str, ...], reserve: int) -> bool:
        """Append an observation; False, and nothing appended, where it and ``reserve`` tokens outgrow the context."""
        seen = self.renderer.observation(observation, not talk.tokens, admissible)
        if len(talk.tokens) + len(seen) + reserve + len(self.renderer.after_action) > self.context:
            return False
        if not talk.tokens:
            self._begin(talk, seen)
        talk.tokens += seen
        return True

    def tell(self, talk: Conversation, action: str, reason: str) -> None:
        """Append the action that was played; what the cache holds of it from decoding need not be read again."""
        played = self.renderer.action(action, reason)
        if talk.known == len(talk.tokens):
            talk.known += common_prefix(talk.path, list(played))
        talk.tokens += played
        talk.path = []

    def extension(
        self,
        talk: Conversation,
        keep: int,
        feed: Sequence[int],
        *,
        reads: int = 0,
        branches: Sequence[Sequence[int]] = (),
        throughout: bool = False,
    ) -> Extension:
        """What the model reads next: all that is pending, then ``feed`` after the first ``keep`` tokens of the path.

        ``reads`` of the last tokens are wanted, and the last of each of ``branches`` or all of them (``throughout``).
        """
        pending = talk.pending
        if not pending and len(feed) < reads:  # asked again at a state read already
            talk.known -= 1
            pending = talk.tokens[-1:]
        self.runner.cache.cut(talk.slot, talk.known + (0 if pending else keep))
        talk.path = [*talk.path[:keep], *feed]
        talk.known = len(talk.tokens)
        extension = Extension(talk.slot, [*pending, *feed], reads, branches, throughout)
        talk.read += len(extension.tokens) + sum(map(len, branches))
        return extension

    def share(self, talk: Conversation, reading: Collection[Conversation]) -> bool:
        """Let ``talk``, of which nothing is read, copy what others have read of the same beginning.

        False where an older one among ``reading`` is just about to read more of it: better to wait for that.
        """
        best, shared = None, 0
        for other in self._openings[talk.opening]:
            if other is talk:
                break  # only older ones: nobody waits in a circle
            common = common_prefix(talk.tokens, other.tokens)
            if common > shared:
                best, shared = other, common
        if best is None:
            return True
        shared = min(shared, len(talk.tokens) - 1)
        if best.known < shared and best in reading:
            return False
        talk.known = min(shared, best.known)
        self.runner.cache.copy(best.slot, talk.slot, talk.known)
        return True

    def _begin(self, talk: Conversation, opening: tuple[int, ...]) -> None:
        talk.opening = opening
        self._openings.setdefault(opening, []).append(talk)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common prefix of two lists, or of two tuples."""
    low, high = 0, min(len(a), len(b))
    while low < high:  # they agree up to ``low``: slices are compared in C, a loop over tokens would not be
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
