"""Trackers that are switched on in the DeepSpeed block."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest
from rendering import cluster_of, planned

from hpc_llm.errors import PlanError, RequestError
from hpc_llm.planning.deepspeed_monitors import MONITORS
from hpc_llm.planning.tasks import required_packages
from hpc_llm.site.cluster import Cluster


def offline() -> Cluster:
    found = cluster_of("delta")
    return found.model_copy(update={"access": found.access.model_copy(update={"internet_compute": "no"})})


def test_each_tracker_of_deepspeeds_is_known_with_what_it_imports() -> None:
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "monitor"
    fields = {
        one.target.id
        for node in ast.parse((folder / "config.py").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "DeepSpeedMonitorConfig"
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    imported = {
        name.name
        for node in ast.walk(ast.parse((folder / "utils.py").read_text()))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert set(MONITORS) == fields
    assert {package for package in MONITORS.values() if package} == imported


@pytest.mark.parametrize(("block", "package"), MONITORS.items())
def test_a_job_is_checked_for_what_its_tracker_imports(block: str, package: str | None) -> None:
    def needed(*settings: str) -> set[str]:
        return set(required_packages([planned("local", "z3", set=settings).plan]))

    more = needed(f"deepspeed.{block}.enabled=true") - needed("engine=deepspeed")
    assert more == ({package} if package else set())
    assert needed(f"deepspeed.{block}.enabled=false", "engine=deepspeed") == needed("engine=deepspeed")


@pytest.mark.parametrize(
    ("block", "way", "rest"),
    [("wandb", "env.WANDB_MODE=offline", "wandb sync"), ("comet", "deepspeed.comet.online=false", "comet upload")],
)
def test_a_tracker_that_nodes_without_internet_cannot_reach_is_refused_with_the_way(
    block: str, way: str, rest: str
) -> None:
    asked = f"deepspeed.{block}.enabled=true"
    with pytest.raises(PlanError) as caught:
        planned(offline(), "z3", set=(asked,))
    said = str(caught.value)
    assert f"deepspeed.{block} sends figures" in said and "access.internet_compute" in said
    assert f"--set {way}" in said and rest in said
    planned(offline(), "z3", set=(asked, way))
    planned(offline(), "z3", set=(asked,), env_file="/home/someone/keys.env")
    planned("local", "z3", set=(asked,))


def test_what_writes_files_passes_without_internet() -> None:
    planned(offline(), "z3", set=("deepspeed.tensorboard.enabled=true", "deepspeed.csv_monitor.enabled=true"))


def test_a_tracker_that_deepspeed_could_not_read_is_refused() -> None:
    with pytest.raises(RequestError, match=r"wandb: holds True, keys of its own are needed"):
        planned("local", "z3", set=("deepspeed.wandb=true",))
    with pytest.raises(RequestError, match=r"wandb\.enabled is 'perhaps': it must be true or false"):
        planned("local", "z3", set=("deepspeed.wandb.enabled=perhaps",))
