"""Games as MLflow traces: an episode is a trace, a turn is a span, and what the PRMs say is feedback.

The policies of one game share a session, so MLflow's page of sessions has them together. Traces carry the clock and
are no outs of DVC. The stage writes them down (:func:`traces`); the process that talks to MLflow sends them
(:func:`log_traces`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentprm_core.types import Game
    from tasks.frame.mlflow_store import Store
    from tasks.report.shown import Shown

SESSION, RUN = "mlflow.trace.session", "mlflow.sourceRun"
"""Keys of a trace's metadata that MLflow's pages group by."""
LOG_TRACES = "tasks.frame.tracing:log_traces"


def traces(games: Sequence[Game], shown: Mapping[str, Sequence[Shown]], chosen: Mapping[str, str]) -> list[dict]:
    """Each episode of each game as JSON. ``chosen``: {game: why it is looked at}."""
    return [
        {
            "game": game.id,
            "kind": game.kind,
            "goal": game.goal,
            "policy": one.name,
            "won": one.episode.won,
            "ending": one.ending,
            "chosen": str(chosen.get(game.id, "")),
            "turns": [_turn(turn, candidates) for turn, candidates in zip(one.episode.turns, one.opinions)],
        }
        for game in games
        for one in shown[game.id]
    ]


def _turn(turn: Any, candidates: Sequence[Any]) -> dict:
    return {
        "observation": turn.observation,
        "action": turn.action,
        "reason": turn.reason,
        "state_key": turn.state_key,
        "valid": turn.valid,
        "candidates": [_plain(c) for c in candidates],
        "q": [float(score) for score in next(c for c in candidates if c.taken).scores],
    }


def _plain(candidate: Any) -> dict:
    probability = None if math.isnan(candidate.probability) else round(candidate.probability, 4)
    return {"action": candidate.action, "probability": probability, "q": [round(q, 4) for q in candidate.scores]}


def log_traces(store: Store, *, traces: Sequence[Mapping], prms: Sequence[str]) -> int:
    """A trace for each of :func:`traces`, in the experiment of the store; how many. ``prms``: their names.

    Feedback on a span is the Q of the action done, one a PRM (``q`` and ``q_2`` …); on the trace it is whether the game
    was won, and the mean of Q.
    """
    import mlflow

    logging.getLogger("mlflow.tracing.export.async_export_queue").setLevel(logging.WARNING)  # it tells of its queue
    for one in traces:
        root = mlflow.start_span_no_context(
            f"{one['kind']}: {one['policy']}",
            span_type="AGENT",
            inputs={"goal": one["goal"], "game": one["game"]},
            experiment_id=store.experiment,
            tags={name: str(one[name]) for name in ("game", "kind", "policy", "chosen")}
            | {"won": str(one["won"]).lower()},
            metadata={SESSION: one["game"], RUN: store.runs["stage"]},
        )
        spans = [_span(mlflow, root, t, turn) for t, turn in enumerate(one["turns"], start=1)]
        root.end(outputs={"won": one["won"], "actions": len(spans), "ending": one["ending"]})
        _feedback(mlflow, root, spans, one, prms)
    mlflow.flush_trace_async_logging()
    return len(traces)


def _span(mlflow: Any, root: Any, number: int, turn: Mapping) -> str:
    """A turn under its episode. Its id."""
    span = mlflow.start_span_no_context(
        f"turn {number}: {turn['action']}",
        span_type="TOOL",
        parent_span=root,
        inputs={"observation": turn["observation"]},
        attributes={name: turn[name] for name in ("state_key", "valid", "candidates")},
    )
    span.end(outputs={"action": turn["action"], **({"reason": turn["reason"]} if turn["reason"] else {})})
    return span.span_id


def _feedback(mlflow: Any, root: Any, spans: Sequence[str], one: Mapping, prms: Sequence[str]) -> None:
    from mlflow.entities import AssessmentSource

    def say(name: str, value: float | bool, source: str, span: str | None = None) -> None:
        by = AssessmentSource(source_type="CODE", source_id=source)
        mlflow.log_feedback(trace_id=root.trace_id, name=name, value=value, source=by, span_id=span)

    mlflow.flush_trace_async_logging()  # feedback goes to a trace that is there
    say("won", one["won"], "world")
    for number, prm in enumerate(prms):
        name = "q" if number == 0 else f"q_{number + 1}"
        taken = [turn["q"][number] for turn in one["turns"]]
        say(f"mean_{name}", round(sum(taken) / len(taken), 4), prm)
        for span, q in zip(spans, taken, strict=True):
            say(name, round(q, 4), prm, span)
