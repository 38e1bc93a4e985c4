"""BabyAI behind the world's contract: one level, told and played as AgentGym does.

The text is AgentGym's without its last line, the list of actions, which are the admissible commands here. ``reset``
puts the goal below the scene. :meth:`BabyAI.published` is the reply word for word.
"""

from __future__ import annotations

import hashlib
import json
from typing import Self

from agentprm_core.types import Game
from agentprm_core.worlds.babyai import kinds
from agentprm_core.worlds.babyai.levels import Level, make_level
from agentprm_core.worlds.babyai.maze import Maze
from agentprm_core.worlds.babyai.scene import COMPLETED, NO_CHANGE, UNKNOWN, Scene, describe
from agentprm_core.worlds.base import Observation, UnsupportedGame

DONE_ABOVE = 0.5
"""AgentGym ends an episode where its reward is above this; a success that earns less is told but not taken."""

_ANEW = "leave the game out, or generate games anew (games.published: null)"


def payload(number: int, seed: int) -> str:
    """What a game is made from."""
    return json.dumps({"level": number, "seed": seed})


def level_of(game: Game) -> Level:
    """The level of a game at its start. Raises :class:`UnsupportedGame` with the game's id and the reason.

    Where minigrid is missing, :class:`agentprm_core.errors.DataError` says what to install.
    """
    try:
        made_from = json.loads(game.payload)
        number, seed = made_from["level"], made_from["seed"]
    except (ValueError, TypeError, KeyError) as error:
        raise UnsupportedGame(
            f'{game.id}: its payload is not {{"level": 1 to 40, "seed": 0 or more}}: {game.payload[:60]!r}; {_ANEW}'
        ) from error
    try:
        return make_level(number, seed)
    except UnsupportedGame as error:
        raise UnsupportedGame(f"{game.id}: {error}; {_ANEW}") from error


class BabyAI:
    """One episode in one level."""

    maze: Maze
    """Where everything is."""
    scene: Scene
    """What was last described: texts, actions and their low-level actions."""
    reward: float
    """That of the last action that was carried out: 0, or what the success was worth, below 0 where it came too late.
    It is told again after a refusal, as in AgentGym."""

    def reset(self, game: Game) -> Observation:
        """Start ``game`` anew. Raises as :func:`level_of`."""
        level = level_of(game)
        self.maze = Maze(level)
        self._image = level.image
        self._describe()
        self.reward, self.done = 0.0, False
        self.text = self.scene.text
        return Observation(f"{self.text}\n\nYour goal: {level.goal}", self.scene.admissible)

    def step(self, command: str) -> Observation:
        """Do ``command``, in any case and with spaces around it. What is refused changes nothing and says why."""
        command = command.lower().strip()
        self.text = self._tell(command)
        return Observation(self.text, self.scene.admissible, max(self.reward, 0.0), self.done)

    def published(self) -> str:
        """AgentGym's last reply: the text with its line of actions."""
        return self.text + self.scene.listed

    def clone(self) -> Self:
        """An independent copy in the same state."""
        twin = object.__new__(type(self))
        twin.maze = self.maze.copy()
        twin.scene, twin.text, twin._image = self.scene, self.text, self._image
        twin.reward, twin.done = self.reward, self.done
        return twin

    def state_key(self) -> str:
        """Digest of the level and of all that can decide what comes: the maze, the agent, the verifiers' memory, the
        number of low-level steps (it decides every later reward, and whether a success still ends the episode) and
        the reward that a refusal would tell again. Turning left and right is therefore another state than before;
        an action that is refused is not."""
        level = self.maze.level
        state = level.number, level.seed, self.maze.steps, self.reward, self.done, *self.maze.physical()
        return hashlib.blake2b(repr(state).encode(), digest_size=16).hexdigest()

    def _describe(self) -> None:
        maze = self.maze
        self.scene = describe(self._image, maze.heading, maze.kinds[maze.carrying] if maze.carrying else kinds.EMPTY)

    def _tell(self, command: str) -> str:
        if "check" in command:
            return "You can take the following actions: " + ", ".join(self.scene.actions)
        if not command:
            return NO_CHANGE
        low_level = self.scene.actions.get(command)
        if low_level is None:
            return self.scene.refusals.get(command, UNKNOWN)
        if not low_level:
            return NO_CHANGE
        return self._carry_out(low_level)

    def _carry_out(self, low_level: bytes) -> str:
        """Until a step leaves the view as it was; reward and end are those of the last step."""
        maze, image, reward, ended = self.maze, self._image, 0.0, False
        for action in low_level:
            reward, ended = maze.do(action)
            seen = maze.image()
            if seen == image:
                break
            image = seen
        self._image, self.reward = image, reward
        self.done = ended and reward > DONE_ABOVE
        self._describe()
        return self.scene.text + COMPLETED if ended else self.scene.text
