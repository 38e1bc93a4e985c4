"""Step beam search N × M over cloned worlds (paper B §4.1): N histories kept, M actions sampled from each.

At every depth all candidates are scored by the PRM; they are stepped best first, in clones of their worlds, and those
that lead to a state already reached at this depth are merged into the better one, until N are found. A path does not
go back to a state that it has been in (the closed list of graph search: the world is deterministic, so nothing is new
there), unless no path, ended ones included, would be left, or the world's refusals tell something
(``WorldSpec.refusals_tell``). The first state counts as N equal ones, so the first depth
samples N·M actions. A path that has ended (done, out of turns or of context) keeps its last score and its place; the
search of a game ends when its best path has ended, and that path is the episode. Whether it was won is read by nobody
before.

What counts is Q_φ + τ log π̂ of the path's last step (:func:`agentprm_core.search.best_of_n.log_shares`, over the
samples of its node). The prior of earlier steps is not added up: Q_φ is the whole path's worth and not a sum over
steps, and a path that ended early would be ahead for that alone. With ``path`` it is: Q_φ + τ Σ log π̂ over all steps.
That keeps a search near the policy where an unlikely action cannot be taken back. The score of a path that is reported
is Q_φ.

The nodes of all games in flight are decoded together and scored in one call a depth. What an action leads to from a
state is found out once a game: paths come back to states that others have left the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentprm_core.errors import DataError
from agentprm_core.policy.sampler import Cost, Decision, Sampler
from agentprm_core.progress import progress, watcher
from agentprm_core.rollout import Start, settled_heap
from agentprm_core.search.best_of_n import log_shares
from agentprm_core.search.recorded import BACK, CROWDED, ENDED, KEPT, MERGED, PASSED, WON, Recorder, Weighed
from agentprm_core.search.scorer import Scorer
from agentprm_core.seeding import episode_seed
from agentprm_core.types import Episode, Turn
from agentprm_core.worlds import Observation, world_spec
from agentprm_core.worlds.base import admits
from agentprm_core.worlds.guarded import Guarded


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a world stands after an action. Nodes share it, so the world is stepped in clones alone."""

    world: Guarded
    key: str
    """The world's ``state_key``."""
    observation: Observation


@dataclass(slots=True, eq=False)
class _Node:
    """One history: where it has come to, and who has read it. An ended one has no seats."""

    place: _Place
    turns: tuple[Turn, ...]
    log_probs: tuple[float, ...]
    score: float
    """Q_φ of the last step."""
    worth: float
    """What it is kept for: the score and the prior of the last step, or of all."""
    been: tuple[str, ...]
    """``state_key`` of every state of the path, the one it stands in included."""
    trail: float
    """Σ log π̂ of the path's actions."""
    seats: tuple[int, int] | None = None
    """Of the sampler and of the scorer."""
    truncated: bool = False
    alone: bool = False
    """The search's first state, which stands for N equal ones."""

    @property
    def seated(self) -> tuple[int, int]:
        """The seats of one that has not ended."""
        assert self.seats is not None
        return self.seats


@dataclass(slots=True)
class _Child:
    """An action sampled at a node, not done yet."""

    parent: _Node
    choice: Decision
    score: float
    worth: float
    trail: float
    """Σ log π̂ of the path with this action."""


@dataclass(slots=True, eq=False)
class _Beam:
    """The search of one game."""

    start: Start
    nodes: list[_Node]
    success: float
    """The reward from which on an episode is won."""
    max_turns: int
    """Actions an episode of this game may have."""
    back: bool
    """Whether a path may go back to a state that it has been in."""
    cost: Cost = field(default_factory=Cost)
    steps: int = 0
    known: dict[tuple[str, str], _Place] = field(default_factory=dict)
    """What each action done in a state led to, by the state's key and the action."""
    trusted: bool = False
    """Whether it was seen that clones are in their world's state and do not change it: once a game."""

    @property
    def live(self) -> list[_Node]:
        return [node for node in self.nodes if node.seats is not None]

    def won(self, node: _Node) -> bool:
        return node.place.observation.reward >= self.success

    def step(self, place: _Place, action: str) -> _Place:
        """Where ``action`` leads from ``place``. It counts as a step, also where that is known."""
        self.steps += 1
        done = place.key, action
        if done not in self.known:
            world = place.world.clone()
            seen = world.step(action)
            reached = _Place(world, world.state_key(), seen)
            if not self.trusted and reached.key != place.key:
                self.trusted = _require_clones(place, reached)
            self.known[done] = reached
        return self.known[done]


def _require_clones(*places: _Place) -> bool:
    """True. Raises DataError where a step in a clone of the first world, which led to the second, has changed the
    first, or where a clone of either is in another state."""
    for place in places:
        place.world.require_clones(place.key)
    return True


class BeamSearch:
    """Searches as many games at once as ``sampler`` and ``scorer`` have seats for."""

    def __init__(
        self,
        sampler: Sampler,
        scorer: Scorer,
        *,
        width: int,
        samples: int,
        prior: float = 0.0,
        back: bool = False,
        path: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        """``width`` N, ``samples`` M, ``prior`` τ. ``back``: paths may go back, as the papers' do. ``path``: the prior
        is that of all of a path's actions. ``recorder`` is told what becomes of every action that is weighed. The
        scorer needs as many seats as the sampler. Raises ValueError where the sampler has fewer than N."""
        if width < 1 or samples < 1:
            raise ValueError(f"beam search needs at least 1 × 1, not {width} × {samples}")
        if sampler.seats < width:
            raise ValueError(f"beam search of width {width} needs that many seats, the sampler has {sampler.seats}")
        self._sampler, self._scorer, self._width, self._samples = sampler, scorer, width, samples
        self._prior, self._back, self._path, self._recorder = prior, back, path, recorder

    def search(self, starts: Iterable[Start], *, world_name: str, max_turns: int) -> Iterator[Episode]:
        """The path found for each start, as games end. ``Episode.extra``: ``score``, ``cost``, ``world_steps``.

        A search begins where a start's actions lead; they are the first of the path.

        Raises:
            ValueError: a start with a first action to be valued.
            DataError: a world that cannot be cloned, or whose clones change it; as :func:`agentprm_core.rollout.play`.
        """
        starts = list(starts)
        if not world_spec(world_name).clones:
            raise DataError(
                f"env.world: {world_name} cannot be cloned, which beam search needs; Best-of-N by turn needs no clones "
                "(best_of_16 in evaluate.decoding and method.search)"
            )
        waiting, beams = iter(starts), []
        with settled_heap(), progress(len(starts), "game") as bar:
            try:
                while True:
                    while (len(beams) + 1) * self._width <= self._sampler.seats and (start := next(waiting, None)):
                        beams.append(self._root(start, world_name, max_turns))
                    if not beams:
                        return
                    watcher().turns(sum(len(beam.live) for beam in beams))
                    self._deepen(beams)
                    for beam in [beam for beam in beams if beam.nodes[0].seats is None]:
                        beams.remove(beam)
                        bar.update()
                        episode = self._episode(beam)
                        watcher().episode(episode.won, beam.cost.generated + beam.cost.policy_read)
                        yield episode
            finally:
                for beam in beams:
                    for node in beam.live:
                        self._leave(beam, node)

    def _root(self, start: Start, world_name: str, max_turns: int) -> _Beam:
        if start.first is not None:
            raise ValueError(f"beam search chooses every action itself; {start.game.id} has one to be valued")
        spec, world = world_spec(world_name), Guarded(world_name)
        seats = self._sampler.open(start.seed), self._scorer.open(start.seed)
        seen, most = world.reset(start.game), spec.turns(start.game, max_turns)
        place = _Place(world, world.state_key(), seen)
        root, played = _Node(place, (), (), 0.0, 0.0, (place.key,), 0.0, seats), spec.of(start.game)
        beam = _Beam(start, [root], played.success, most, back=self._back or played.refusals_tell)
        self._look(beam, beam.nodes[0])
        for turn in range(len(start.actions)):
            given = start.given(turn)
            assert given is not None
            self._replay(beam, *given)
        beam.nodes[0].alone = True
        return beam

    def _replay(self, beam: _Beam, action: str, reason: str) -> None:
        """Do what is given at the only node, where it has not ended."""
        (node,) = beam.nodes
        if node.seats is None:
            return
        place = beam.step(node.place, action)
        following = _node(_Child(node, Decision(action, reason, 0.0), 0.0, 0.0, 0.0), place)
        following.seats, following.been = node.seats, (place.key,)  # what was done before forbids nothing
        self._sampler.tell(node.seated[0], action, reason)
        self._scorer.tell(node.seated[1], action, reason)
        beam.nodes = [following]
        if place.observation.done:
            self._leave(beam, following)
        else:
            self._look(beam, following)

    def _deepen(self, beams: list[_Beam]) -> None:
        """One more turn of every live node."""
        nodes = [node for beam in beams for node in beam.live]
        decisions = self._decide(nodes)
        scores = self._scorer.score([(node.seated[1], decided) for node, decided in zip(nodes, decisions)])
        found = iter(zip(scores, decisions))
        for beam in beams:
            children = []
            for node in beam.live:
                qs, choices = next(found)
                shares = log_shares(choices)
                trails = [node.trail + share for share in shares]
                weighed = trails if self._path else shares
                worths = [q + self._prior * likelihood for q, likelihood in zip(qs, weighed, strict=True)]
                children += [_Child(node, *of) for of in zip(choices, qs, worths, trails, strict=True)]
            self._keep_best(beam, children)

    def _decide(self, nodes: list[_Node]) -> list[tuple[Decision, ...]]:
        for node in nodes:
            self._sampler.ask(node.seated[0], self._samples * self._width if node.alone else self._samples)
        decided: dict[int, tuple[Decision, ...]] = {}
        while len(decided) < len(nodes):
            decided.update(self._sampler.tick())
        return [decided[node.seated[0]] for node in nodes]

    def _keep_best(self, beam: _Beam, children: list[_Child]) -> None:
        """The best N of the ended paths and of the live nodes' children."""
        ended = [node for node in beam.nodes if node.seats is None]
        children.sort(key=lambda child: (-child.worth, -child.choice.count))
        kept: list[tuple[_Node, _Node]] = []  # a parent and its child
        reached: set[str] = set()
        back: tuple[_Node, _Node] | None = None  # the best of those that go back
        fates: list[str] = []
        for child in children:
            if len(kept) == self._width:
                break
            place = beam.step(child.parent.place, child.choice.action)
            if place.key in reached:
                fates.append(MERGED)
                continue
            if not beam.back and place.key in child.parent.been:
                back = back or (child.parent, _node(child, place))
                fates.append(BACK)
                continue
            reached.add(place.key)
            kept.append((child.parent, _node(child, place)))
            fates.append(KEPT)
        if not (kept or ended) and back:
            kept.append(back)
            fates[fates.index(BACK)] = KEPT
        self._record(beam, children, fates)
        parents = beam.live
        beam.nodes = sorted([*ended, *self._seat(beam, parents, kept)], key=lambda node: -node.worth)
        for node in beam.nodes[self._width :]:
            self._leave(beam, node)
            self._record_node(beam, node, CROWDED)
        del beam.nodes[self._width :]
        for node in beam.live:
            if node.place.observation.done or len(node.turns) == beam.max_turns:
                self._leave(beam, node)
                self._record_node(beam, node, WON if beam.won(node) else ENDED)
            else:
                self._look(beam, node)

    def _record(self, beam: _Beam, children: list[_Child], fates: list[str]) -> None:
        """Tell the recorder of all children, the best first; those that were not looked at any more have no fate."""
        if self._recorder is None:
            return
        for number, child in enumerate(children):
            path = (*(turn.action for turn in child.parent.turns), child.choice.action)
            fate = fates[number] if number < len(fates) else PASSED
            self._recorder(beam.start, Weighed(path, child.choice.count, child.score, child.worth, fate))

    def _record_node(self, beam: _Beam, node: _Node, fate: str) -> None:
        if self._recorder is not None:
            path = tuple(turn.action for turn in node.turns)
            self._recorder(beam.start, Weighed(path, 0, node.score, node.worth, fate))

    def _seat(self, beam: _Beam, parents: list[_Node], kept: list[tuple[_Node, _Node]]) -> list[_Node]:
        """The children, seated: the last child of a parent takes its seats over, the others fork them."""
        left = Counter(id(parent) for parent, _ in kept)
        for parent in parents:
            if not left[id(parent)]:
                self._leave(beam, parent)
        for place, (parent, child) in enumerate(kept):
            left[id(parent)] -= 1
            sampling, scoring = parent.seated
            if left[id(parent)]:
                seed = episode_seed(beam.start.seed, len(parent.turns), place)
                sampling, scoring = self._sampler.fork(sampling, seed), self._scorer.fork(scoring)
            child.seats = sampling, scoring
        for _, child in kept:  # only now: a parent's seats are forked before they go on
            played = child.turns[-1]
            self._sampler.tell(child.seated[0], played.action, played.reason)
            self._scorer.tell(child.seated[1], played.action, played.reason)
        return [child for _, child in kept]

    def _look(self, beam: _Beam, node: _Node) -> None:
        """Let both read what ``node`` sees; one without room for it ends there."""
        seen = node.place.observation
        room = self._sampler.see(node.seated[0], seen.text, seen.admissible)
        if not (self._scorer.see(node.seated[1], seen.text, seen.admissible) and room):
            node.truncated = True
            self._leave(beam, node)

    def _leave(self, beam: _Beam, node: _Node) -> None:
        """Give up a node's seats; what was spent on them is the beam's."""
        if node.seats is not None:
            beam.cost += self._sampler.close(node.seats[0]) + Cost(prm_read=self._scorer.close(node.seats[1]))
            node.seats = None

    def _episode(self, beam: _Beam) -> Episode:
        for node in beam.live:
            self._leave(beam, node)
        best = beam.nodes[0]
        return Episode(
            game_id=beam.start.game.id,
            index=beam.start.index,
            seed=beam.start.seed,
            turns=best.turns,
            won=beam.won(best),
            reward=best.place.observation.reward,
            truncated=best.truncated,
            extra={
                "log_probs": best.log_probs,
                "score": best.score,
                "cost": beam.cost,
                "world_steps": beam.steps,
            },
        )


def _node(child: _Child, place: _Place) -> _Node:
    """Without seats yet."""
    parent, choice = child.parent, child.choice
    before = parent.place.observation
    valid = admits(before.admissible, choice.action)
    turn = Turn(before.text, choice.action, before.admissible, valid, parent.place.key, choice.reason)
    log_probs = (*parent.log_probs, choice.log_prob)
    been = (*parent.been, place.key)
    return _Node(place, (*parent.turns, turn), log_probs, child.score, child.worth, been, child.trail)
