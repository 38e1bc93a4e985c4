"""How a server of models is spoken with. Light: the help of a command reads it before anything is loaded."""

from __future__ import annotations

SPEECH = {"text": "/completions", "chat": "/chat/completions"}
"""Speech → the path of its requests, after the version. ``text`` is for policies that were trained here, ``chat`` for
published ones."""
API_KEY = "OPENAI_API_KEY"
"""The environment's variable with a server's key: a flag would show it to whoever lists processes."""
