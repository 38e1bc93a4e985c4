"""Games as MLflow traces: an episode is a trace, a turn is a span, and what the PRMs say is feedback.

The policies of one game share a session, so MLflow's page of sessions has them together. Traces carry the clock and
are no outs of DVC.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.frame.tracking import connect

if TYPE_CHECKING:
    from agentprm_core.types import Game
    from tasks.report.shown import Shown

SESSION, RUN = "mlflow.trace.session", "mlflow.sourceRun"
"""Keys of a trace's metadata that MLflow's pages group by."""


def log_traces(
    games: Sequence[Game], shown: Mapping[str, Sequence[Shown]], prms: Sequence[str], *, run: str, chosen: Mapping
) -> int:
    """A trace for each episode of each game; how many. ``run``: the stage's; ``chosen``: {game: why it is looked at}.

    Feedback on a span is the Q of the action done, one a PRM (``q`` and ``q_2`` …); on the trace it is whether the game
    was won, and the mean of Q.
    """
    _, experiment = connect()
    import mlflow
    from mlflow.entities import SpanType

    logging.getLogger("mlflow.tracing.export.async_export_queue").setLevel(logging.WARNING)  # it tells of its queue
    count = 0
    for game in games:
        for one in shown[game.id]:
            root = mlflow.start_span_no_context(
                f"{game.kind}: {one.name}",
                span_type=SpanType.AGENT,
                inputs={"goal": game.goal, "game": game.id},
                experiment_id=experiment,
                tags={"game": game.id, "kind": game.kind, "policy": one.name, "won": str(one.episode.won).lower(),
                      "chosen": str(chosen.get(game.id, ""))},
                metadata={SESSION: game.id, RUN: run},
            )  # fmt: skip
            spans = _turns(mlflow, root, one)
            root.end(outputs={"won": one.episode.won, "actions": one.episode.length, "ending": one.ending})
            _feedback(mlflow, root, spans, one, prms)
            count += 1
    mlflow.flush_trace_async_logging()
    return count


def _turns(mlflow: Any, root: Any, one: Shown) -> list[str]:
    """A span a turn, under the episode's. Their ids."""
    from mlflow.entities import SpanType

    ids = []
    for t, (turn, candidates) in enumerate(zip(one.episode.turns, one.opinions)):
        span = mlflow.start_span_no_context(
            f"turn {t + 1}: {turn.action}",
            span_type=SpanType.TOOL,
            parent_span=root,
            inputs={"observation": turn.observation},
            attributes={
                "state_key": turn.state_key,
                "valid": turn.valid,
                "candidates": [_plain(c) for c in candidates],
            },
        )
        span.end(outputs={"action": turn.action, **({"reason": turn.reason} if turn.reason else {})})
        ids.append(span.span_id)
    return ids


def _plain(candidate: Any) -> dict:
    probability = None if math.isnan(candidate.probability) else round(candidate.probability, 4)
    return {"action": candidate.action, "probability": probability, "q": [round(q, 4) for q in candidate.scores]}


def _feedback(mlflow: Any, root: Any, spans: Sequence[str], one: Shown, prms: Sequence[str]) -> None:
    from mlflow.entities import AssessmentSource

    def say(name: str, value: float | bool, source: str, span: str | None = None) -> None:
        by = AssessmentSource(source_type="CODE", source_id=source)
        mlflow.log_feedback(trace_id=root.trace_id, name=name, value=value, source=by, span_id=span)

    mlflow.flush_trace_async_logging()  # feedback goes to a trace that is there
    say("won", one.episode.won, "world")
    for number, prm in enumerate(prms):
        name = "q" if number == 0 else f"q_{number + 1}"
        taken = [next(c for c in candidates if c.taken).scores[number] for candidates in one.opinions]
        say(f"mean_{name}", round(sum(taken) / len(taken), 4), prm)
        for span, q in zip(spans, taken, strict=True):
            say(name, round(q, 4), prm, span)
