"""BabyAI's 40 levels in AgentGym's order, and one level made by minigrid as plain data.

minigrid is an extra of this package and imported when the first level is made. Making a level is all that it is asked
for: mazes, missions and their seeds are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

from agentprm_core.errors import DataError
from agentprm_core.worlds.babyai.kinds import EMPTY, OF_TRIPLE, WALL
from agentprm_core.worlds.babyai.missions import Mission, compile_mission
from agentprm_core.worlds.babyai.view import PAD
from agentprm_core.worlds.base import UnsupportedGame

LEVELS = (
    *("GoToRedBallGrey", "GoToRedBall", "GoToRedBallNoDists", "GoToObjS6", "GoToLocalS8N7", "GoToObjMazeS7"),
    *("GoToImpUnlock", "GoToSeqS5R2", "GoToRedBlueBall", "GoToDoor", "GoToObjDoor", "Open", "OpenRedDoor"),
    *("OpenDoorLoc", "OpenRedBlueDoorsDebug", "OpenDoorsOrderN4Debug", "Pickup", "UnblockPickup", "PickupLoc"),
    *("PickupDistDebug", "PickupAbove", "PutNextLocalS6N4", "PutNextS7N4Carrying", "Unlock", "UnlockLocalDist"),
    *("KeyInBox", "UnlockPickupDist", "BlockedUnlockPickup", "UnlockToUnlock", "ActionObjDoor", "FindObjS7"),
    *("KeyCorridorS6R3", "OneRoomS20", "MoveTwoAcrossS8N9", "SynthS5R2", "SynthLoc", "SynthSeq"),
    *("MiniBossLevel", "BossLevel", "BossLevelNoUnlock"),
)
"""Names of the levels 1 to 40: ``BabyAI-{name}-v0`` in AgentGym."""

_MADE_AS = {"GoToObjS6": "GoToObjS4"}
"""minigrid before 3 made rooms of size 4 under this name; 3 has them under another."""

KINDS = {
    "goto": (1, 2, 3, 4, 5, 6, 7, 9, 10, 11),
    "open": (12, 13, 14, 15, 16),
    "pickup": (17, 18, 19, 20, 21, 31, 33),
    "putnext": (22, 23),
    "unlock": (24, 25, 26, 27, 28, 29, 32),
    "mixed": (30, 35, 36),
    "sequence": (8, 34, 37, 38, 39, 40),
}
"""Kind of task → its levels. ``mixed``: one clause of any kind; ``sequence``: several."""

KIND_OF = {level: kind for kind, levels in KINDS.items() for level in levels}


@dataclass(frozen=True, slots=True)
class Level:
    """A level at its start. A cell is a byte, row by row, with :data:`PAD` walls around the maze."""

    number: int
    seed: int
    mission_text: str
    """minigrid's own words, with the order of what is to be done."""
    max_steps: int
    width: int
    """Cells in a padded row."""
    things: bytes
    """0 nothing, 1 wall, from 2 on doors and things."""
    kinds: bytes
    """256 bytes: what each number is (:mod:`agentprm_core.worlds.babyai.kinds`)."""
    count: int
    """Numbers in use, 0 and 1 included."""
    at: int
    heading: int
    """0 right, 1 down, 2 left, 3 up."""
    carrying: int
    """The number of what is carried from the start; 0: nothing."""
    image: int
    """The first view. Where a thing is carried from the start it still shows it lying, as minigrid's does."""
    ahead: tuple[int, int, int, int]
    """Heading → how far the next cell is in ``things``."""
    mission: Mission

    @property
    def goal(self) -> str:
        """The mission as AgentGym tells it: the order is lost."""
        return self.mission_text.replace("then", "and").replace("after you", "and")


_INSTALL = "pip install minigrid==3.2.0 gymnasium==1.4.0"
_AGENT_TRIES = 20_000
"""Places drawn in a row for the agent. A room has at most a few hundred: cells, and four directions in each."""


@cache
def _packages():
    try:
        import gymnasium
        import minigrid
        from minigrid.envs.babyai.core import roomgrid_level
    except ModuleNotFoundError as error:
        raise DataError(f"babyai needs {error.name}, which is not installed here: {_INSTALL}") from error
    # it tells the standard output of every maze that it draws again
    roomgrid_level.print = lambda *_: None  # pyright: ignore[reportAttributeAccessIssue]: hides the built-in one
    return gymnasium, minigrid


def make_environment(number: int, seed: int):
    """minigrid's environment of a level, reset with a seed, and its first image.

    Raises:
        UnsupportedGame: no such level, or a seed below 0.
        DataError: minigrid is missing, or of a version without this level.
    """
    if not (isinstance(number, int) and 1 <= number <= len(LEVELS)):
        raise UnsupportedGame(f"BabyAI has the levels 1 to {len(LEVELS)}, not {number!r}")
    if not (isinstance(seed, int) and seed >= 0):
        raise UnsupportedGame(f"a BabyAI level is drawn from a seed of 0 or more, not {seed!r}")
    gymnasium, minigrid = _packages()
    name = LEVELS[number - 1]
    try:
        environment = gymnasium.make(f"BabyAI-{_MADE_AS.get(name, name)}-v0", disable_env_checker=True).unwrapped
    except gymnasium.error.UnregisteredEnv as error:
        raise DataError(f"minigrid {minigrid.__version__} has no level {name}: {_INSTALL}") from error
    environment.place_obj = _Placing(environment.place_obj)
    seen, _ = environment.reset(seed=seed)
    return environment, seen["image"]


class _Placing:
    """minigrid's ``place_obj``, which does not look for a place for the agent for ever.

    The agent may not look at a thing at its start. minigrid draws until that is so, also where a room is so full that
    it cannot be. It draws the level anew after a RecursionError, which it raises itself where a thing finds no place.
    """

    def __init__(self, place: Callable) -> None:
        self._place, self._agents = place, 0

    def __call__(self, thing, *args, **kwargs):
        self._agents = self._agents + 1 if thing is None else 0
        if self._agents > _AGENT_TRIES:
            self._agents = 0
            raise RecursionError("no place for the agent")
        return self._place(thing, *args, **kwargs)


def build_level(number: int, seed: int) -> Level:
    """A level as plain data. Raises as :func:`make_environment`."""
    environment, image = make_environment(number, seed)
    grid = environment.grid
    width = grid.width + 2 * PAD
    numbers: dict[int, int] = {}
    kinds = bytearray((EMPTY, WALL))

    def number_of(thing) -> int:
        if thing is None or thing.type == "wall":
            return int(thing is not None)
        if id(thing) not in numbers:
            numbers[id(thing)] = len(kinds)
            kinds.append(OF_TRIPLE[thing.encode()])
        return numbers[id(thing)]

    def place(column: int, row: int) -> int:
        return (int(row) + PAD) * width + int(column) + PAD

    cells = bytearray(b"\1") * (width * (grid.height + 2 * PAD))
    for row in range(grid.height):
        line = grid.grid[row * grid.width : (row + 1) * grid.width]
        cells[place(0, row) : place(grid.width, row)] = bytes(map(number_of, line))
    carrying = number_of(environment.carrying)
    return Level(
        number=number,
        seed=seed,
        mission_text=environment.mission,
        max_steps=environment.max_steps,
        width=width,
        things=bytes(cells),
        at=place(*environment.agent_pos),
        heading=int(environment.agent_dir),
        carrying=carrying,
        image=int.from_bytes(OF_TRIPLE[tuple(image[i, j].tolist())] for j in range(7) for i in range(7)),
        ahead=(1, width, -1, -width),
        mission=compile_mission(environment.instrs, number_of, place),
        count=len(kinds),
        kinds=bytes(kinds).ljust(256, b"\0"),
    )


make_level = lru_cache(maxsize=2048)(build_level)
"""The same level again at no cost: drawing one takes minigrid as long as forty steps of play."""
