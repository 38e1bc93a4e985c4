"""The graph as the flows see it is DVC's graph."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flows.graph import GraphStage, read_graph, steps, with_needs
from tests.flows.conftest import ROOT


def dvc_dag(root: Path) -> tuple[set[str], set[tuple[str, str]]]:
    """Stages and edges (needed, needing) as ``dvc dag`` prints them."""
    shown = subprocess.run([sys.executable, "-m", "dvc", "dag", "--dot"], cwd=root, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    edges = set(re.findall(r'^"(.+)" -> "(.+)";$', shown.stdout, re.MULTILINE))
    return set(re.findall(r'^"([^"]+)";$', shown.stdout, re.MULTILINE)), edges


def assert_flow_order_is_dags(root: Path) -> None:
    stages, edges = dvc_dag(root)
    order = [stage.name for step in steps(read_graph(root)) for stage in step.stages]
    assert sorted(order) == sorted(stages)
    assert all(order.index(needed) < order.index(needing) for needed, needing in edges)
    assert {(need, stage.name) for stage in read_graph(root) for need in stage.needs} == edges


def test_flow_order_equals_dvc_dags_order(project: Path) -> None:
    assert_flow_order_is_dags(project)


def test_flow_order_equals_dvc_dags_order_for_the_real_pipeline() -> None:
    assert_flow_order_is_dags(ROOT)


def test_a_campaign_goes_iteration_by_iteration(project: Path) -> None:
    assert [(step.iteration, [stage.name for stage in step.stages]) for step in steps(read_graph(project))] == [
        (None, ["seed"]),
        (1, ["grow@1", "measure@1"]),
        (2, ["grow@2", "measure@2"]),
        (None, ["compare"]),
    ]


def test_an_iteration_that_waits_for_a_stage_outside_comes_in_two_steps() -> None:
    graph = [
        GraphStage("grow@1", (), ()),
        GraphStage("merge", ("grow@1",), ()),
        GraphStage("measure@1", ("merge",), ()),
    ]
    assert [[stage.name for stage in step.stages] for step in steps(graph)] == [["grow@1"], ["merge"], ["measure@1"]]


def test_an_iteration_comes_with_what_it_needs(project: Path) -> None:
    names = [stage.name for stage in with_needs(read_graph(project), 2)]
    assert names == ["seed", "grow@1", "grow@2", "measure@2"]


def test_tags_come_from_meta(project: Path) -> None:
    assert {stage.name: stage.tags for stage in read_graph(project) if stage.tags} == {"seed": ("gpu",)}


def test_an_unknown_iteration_names_those_there_are(project: Path) -> None:
    with pytest.raises(ValueError, match=r"^iteration 7: dvc\.yaml has the iterations 1, 2$"):
        with_needs(read_graph(project), 7)
