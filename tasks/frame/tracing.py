"""Games as MLflow traces: an episode is a trace, a turn is a span, and what the PRMs say is feedback.

The policies of one game share a session, so MLflow's page of sessions has them together. Traces carry the clock and
are no outs of DVC. The stage writes them down (:func:`traces`); the process that talks to MLflow sends them
(:func:`log_traces`).
"""

from __future__ import annotations

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

    Those of this run that MLflow has whole are left out, so it can be called again after a kill. Feedback on a span
    is the Q of the action done, one a PRM (``q`` and ``q_2`` …); on the trace it is whether the game was won, and the
    mean of Q.

    Raises:
        MlflowException: MLflow answers, and has not kept all of them with all of their spans, though they were sent
            twice.
    """
    import mlflow
    from mlflow.protos.databricks_pb2 import INVALID_STATE

    sent = 0
    for _ in range(2):  # MLflow's queue drops what the server does not take, and does not say so
        missing = _missing(store, traces)
        if not missing:
            return sent
        _record(store, missing, prms)
        mlflow.flush_trace_async_logging()
        sent += len(missing)
    if missing := _missing(store, traces):
        raise mlflow.MlflowException(f"MLflow has not kept {len(missing)} of {len(traces)} traces whole", INVALID_STATE)
    return sent


def _missing(store: Store, traces: Sequence[Mapping]) -> list[Mapping]:
    """Those that MLflow does not have whole in the store's run: a span for the episode and one for each turn."""
    import mlflow

    asked = f"metadata.`{RUN}` = '{store.runs['stage']}'"
    found = mlflow.search_traces(locations=[store.experiment], filter_string=asked, return_type="list")
    whole = {(trace.info.tags["game"], trace.info.tags["policy"], len(trace.data.spans) - 1) for trace in found}
    return [one for one in traces if (str(one["game"]), str(one["policy"]), len(one["turns"])) not in whole]


def _record(store: Store, traces: Sequence[Mapping], prms: Sequence[str]) -> None:
    import mlflow
    from mlflow.entities import AssessmentSource
    from mlflow.entities.trace_location import MlflowExperimentLocation

    where = MlflowExperimentLocation(store.experiment)
    judges = [(_q(number), AssessmentSource(source_type="CODE", source_id=prm)) for number, prm in enumerate(prms)]
    world = AssessmentSource(source_type="CODE", source_id="world")
    for one in traces:
        tags = {name: str(one[name]) for name in ("game", "kind", "policy", "chosen")}
        tags["won"] = str(one["won"]).lower()
        # feedback that is given while the trace is open is sent with it, and not in a transaction each
        with mlflow.start_span(f"{one['kind']}: {one['policy']}", "AGENT", trace_destination=where) as root:
            mlflow.update_current_trace(tags, metadata={SESSION: one["game"], RUN: store.runs["stage"]})
            root.set_inputs({name: one[name] for name in ("policy", "goal", "game")})
            root.set_outputs({"won": one["won"], "actions": len(one["turns"]), "ending": one["ending"]})
            mlflow.log_feedback(trace_id=root.trace_id, name="won", value=one["won"], source=world)
            for number, (name, judge) in enumerate(judges):
                mean = sum(turn["q"][number] for turn in one["turns"]) / len(one["turns"])
                mlflow.log_feedback(trace_id=root.trace_id, name=f"mean_{name}", value=round(mean, 4), source=judge)
            for number, turn in enumerate(one["turns"], start=1):
                _span(mlflow, root.trace_id, number, turn, judges)


def _q(number: int) -> str:
    return "q" if number == 0 else f"q_{number + 1}"


def _span(mlflow: Any, trace: str, number: int, turn: Mapping, judges: Sequence[tuple[str, Any]]) -> None:
    """A turn under its episode, with what the PRMs say of its action."""
    with mlflow.start_span(f"turn {number}: {turn['action']}", "TOOL") as span:
        span.set_inputs({"observation": turn["observation"]})
        span.set_outputs({"action": turn["action"], **({"reason": turn["reason"]} if turn["reason"] else {})})
        span.set_attributes({name: turn[name] for name in ("state_key", "valid", "candidates")})
    for (name, judge), q in zip(judges, turn["q"], strict=True):
        mlflow.log_feedback(trace_id=trace, name=name, value=round(q, 4), source=judge, span_id=span.span_id)
