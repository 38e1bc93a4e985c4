"""BabyAI as AgentGym plays it: minigrid's levels, told in text and acted in by names of things.

Levels, missions and mazes come from the package minigrid (:mod:`.levels`); what a low-level action does
(:mod:`.maze`), whether the mission is done (:mod:`.missions`), what the text says and which actions there are
(:mod:`.scene`, :mod:`.routes`) are written here and held against minigrid and against recorded dialogues.
"""
