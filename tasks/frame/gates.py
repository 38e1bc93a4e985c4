"""The gate that data must pass before a stage's outs appear, kept by Great Expectations.

A gate is a list of :class:`Check`: a frame and what is expected of it (:mod:`agentprm_core.expectations`). Results lie
in ``.scratch/gates/STAGE.json``, also of a gate that failed, Data Docs (HTML) in ``.scratch/gates/STAGE/``: these carry
the clock. A gate that fails raises, and the stage writes nothing. An expectation that is a warning fails no gate.

Where Great Expectations is not installed, :mod:`tasks.frame.plain_checks` decides the same expectations. This is said
on standard error, and there are no Data Docs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from agentprm_core.datasets import atomic_write
from agentprm_core.errors import DataError
from agentprm_core.expectations import Check
from tasks.frame.plain_checks import decided, snake

GATES = Path(".scratch/gates")
_ROWS_NAMED = 5


class GateError(DataError):
    """Data that did not pass. Names each expectation that failed and the first rows that broke it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one expectation."""

    table: str
    expectation: str
    why: str
    success: bool
    observed: str
    """The value seen, or the number of rows that broke it."""
    rows: tuple[str, ...]
    """The first rows that broke it."""
    severity: str = "critical"
    """``critical``, or ``warning``: it fails no gate."""
    column: str = ""
    """What is expected of; empty where it is several columns together."""


def run_gate(stage: str, checks: Sequence[Check], before: Sequence[Result] = ()) -> list[Result]:
    """Check the frames; write results, after those of the same stage's gates ``before``, and Data Docs.

    Raises:
        GateError: an expectation failed; names the expectations and the rows.
    """
    docs = GATES / (f"{stage}.{len(before)}" if before else stage)
    keeper = keeps_gates()
    results = _validate(docs, checks) if keeper else _decide(stage, checks)
    GATES.mkdir(parents=True, exist_ok=True)
    with atomic_write(GATES / f"{stage}.json") as aside:
        aside.write_text(json.dumps(as_rows([*before, *results]), indent=2) + "\n")
    failed = [result for result in results if not result.success and result.severity != "warning"]
    if failed:
        look = f"Data Docs: {docs / 'index.html'}" if keeper else f"all of them: {GATES / stage}.json"
        raise GateError(
            f"the gate failed, no out was written ({len(failed)} of {len(results)} expectations; "
            f"{look})\n" + "\n".join(f"  {sentence(result)}" for result in failed)
        )
    return results


def as_rows(results: Sequence[Result]) -> list[dict]:
    """As they stand in a file."""
    return [{name: getattr(result, name) for name in Result.__slots__} for result in results]


def sentence(result: Result) -> str:
    """What was expected and what was seen."""
    rows = f"; rows: {'; '.join(result.rows)}" if result.rows else ""
    return f"{result.table}: {result.why} [{result.expectation}]: {result.observed}{rows}"


def keeps_gates() -> bool:
    """Whether Great Expectations is installed here."""
    return find_spec("great_expectations") is not None


def _decide(stage: str, checks: Sequence[Check]) -> list[Result]:
    """Without Great Expectations."""
    said = "Great Expectations is not installed: AgentPRM decides the gate's expectations itself, without Data Docs"
    print(f"{stage}: {said}", file=sys.stderr, flush=True)
    results = []
    for check in checks:
        for expected in check.expectations:
            found = decided(check, expected, _ROWS_NAMED)
            column, kind = expected.arguments.get("column", ""), snake(expected.type)
            told = (found.success, found.observed, found.rows)
            results.append(Result(check.name, kind, expected.why, *told, expected.severity, column))
    return results


def _validate(docs: Path, checks: Sequence[Check]) -> list[Result]:
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # read at import
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the package
        import great_expectations as gx
        from great_expectations.data_context.types.base import ProgressBarsConfig

        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        _add_docs(context, docs)
        results = [result for check in checks for result in _run_check(gx, context, check)]
        context.build_data_docs()
    return results


def _add_docs(context, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    context.delete_data_docs_site("local_site")  # a second copy, in a temporary folder
    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
    index = {"class_name": "DefaultSiteIndexBuilder"}
    context.add_data_docs_site(
        "gates", {"class_name": "SiteBuilder", "store_backend": store, "site_index_builder": index}
    )


def _run_check(gx, context, check: Check) -> list[Result]:
    from great_expectations import expectations

    suite = context.suites.add(gx.ExpectationSuite(name=check.name))
    for expected in check.expectations:
        said = {"meta": {"why": expected.why}, "severity": expected.severity}
        suite.add_expectation(getattr(expectations, expected.type)(**expected.arguments, **said))
    source = context.data_sources.add_pandas(check.name)
    batch = source.add_dataframe_asset(check.name).add_batch_definition_whole_dataframe("all")
    definition = gx.ValidationDefinition(name=check.name, data=batch, suite=suite)
    checkpoint = gx.Checkpoint(
        name=check.name,
        validation_definitions=[context.validation_definitions.add(definition)],
        result_format={
            "result_format": "SUMMARY",
            "unexpected_index_column_names": list(check.index),
            "partial_unexpected_count": _ROWS_NAMED,
        },
    )
    frame = check.frame.to_pandas()
    run = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": frame})
    (validation,) = run.run_results.values()
    return [_result(check, found) for found in validation.results]


def _result(check: Check, found) -> Result:
    raised = found.exception_info or {}
    if raised.get("raised_exception") or any(
        isinstance(v, dict) and v.get("raised_exception") for v in raised.values()
    ):
        raise RuntimeError(f"{check.name}: {found.expectation_config.type} could not be evaluated: {raised}")
    result = found.result
    if "observed_value" in result:
        value = result["observed_value"]
        observed = "not a number" if value is None else f"{float(value):.4g}"
        rows: tuple[str, ...] = ()
    else:
        observed = f"{result['unexpected_count']} of {result['element_count']} rows"
        rows = tuple(", ".join(f"{k}={v}" for k, v in row.items()) for row in result["partial_unexpected_index_list"])
    why = found.expectation_config.meta["why"]
    severity = str(getattr(found.expectation_config.severity, "value", found.expectation_config.severity))
    kind = found.expectation_config.type
    column = found.expectation_config.kwargs.get("column", "")
    return Result(check.name, kind, why, bool(found.success), observed, rows[:_ROWS_NAMED], severity, column)
