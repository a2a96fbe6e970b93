"""An option of --sbatch that replaces what the plan or the profile would ask for: it is said, with what and from where."""

from __future__ import annotations

from typing import Any

import pytest
from rendering import LOGS, SUPPORT, batch, explained_lines, planned
from test_planning import variant

from hpc_llm.errors import RequestError
from hpc_llm.job.render import Place
from hpc_llm.schedulers.slurm.header import sbatch_flags
from hpc_llm.site.cluster import Cluster
from hpc_llm.site.sbatch_options import KNOWN

EXTRA = ["--requeue", "--qos=a", "--hint=nomultithread", "--gres=lustre:1"]


def busy(**request: Any) -> Cluster:
    """A site that asks for as much as a profile can."""
    return variant("delta", request={"extra": EXTRA, "exclusive": True, **request})


def flags(cluster: Cluster, *options: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    found = planned(cluster, "z3", sbatch=options, set=("precision=fp16",))
    place = Place(LOGS / "RUN-ID", SUPPORT, LOGS / "python")
    return {name: value for name, (value, _) in sbatch_flags(found, cluster, place, None).items()}, found.notices


def words(name: str) -> list[str]:
    return [name, f"{name}=1", f"{name}=4G", f"{name}=lustre:2", f"{name}=multithread", f"{name}=other"]


@pytest.mark.parametrize("style", ["mem", "mem-per-gpu", "mem-per-cpu"])
def test_every_option_that_changes_another_line_of_the_script_says_so(style: str) -> None:
    cluster = busy(memory=style)
    before, _ = flags(cluster)
    replacing = set()
    for word in (word for name in sorted(KNOWN) for word in words(name)):
        try:
            after, notices = flags(cluster, word)
        except RequestError:
            continue
        given = word.partition("=")[0]
        for other in before:
            if other in after and after[other] == before[other]:
                continue
            if other == "gres" and after["gres"] is None:
                continue
            value = before[other]
            was = other if value is None else f"{other}={value}"
            assert any(n.startswith(f"--sbatch {word} takes the place of {was} (cluster delta: ") for n in notices), (
                word,
                notices,
            )
            replacing.add(given)
    assert {
        "mem",
        "mem-per-gpu",
        "mem-per-cpu",
        "cpus-per-task",
        "qos",
        "hint",
        "no-requeue",
        "constraint",
        "oversubscribe",
    } <= replacing


@pytest.mark.parametrize(
    ("word", "instead", "mem"),
    [
        ("mem=64G", "mem=238418M (cluster delta: node.mem_gb_per_gpu)", "64G"),
        ("mem-per-gpu=10G", "mem=238418M (cluster delta: node.mem_gb_per_gpu)", None),
        ("cpus-per-task=8", "cpus-per-task=16 (cluster delta: node.cpus_per_gpu)", "238418M"),
        ("constraint=projects", "constraint=work (cluster delta: request.constraint)", "238418M"),
    ],
)
def test_plan_and_script_name_what_was_replaced(word: str, instead: str, mem: str | None) -> None:
    found = planned("delta", "z3", sbatch=(word,))
    assert found.notices == (f"--sbatch {word} takes the place of {instead}",)
    assert found.plan.job.mem == mem
    explained = explained_lines(batch("delta", "z3", sbatch=(word,)).scripts[0].explained())
    assert (f"#SBATCH --{word}", f"request, instead of {instead}") in explained


def test_what_repeats_the_plan_replaces_nothing() -> None:
    assert planned("delta", "z3", sbatch=("cpus-per-task=16", "constraint=work", "mem=238418M", "nice=1")).notices == ()


def test_a_generic_resource_of_the_request_takes_the_place_of_the_profiles_and_leaves_the_gpus() -> None:
    cluster = variant("taiwania2", request={"extra": ["--gres=lustre:1"]})
    after, notices = flags(cluster, "gres=lustre:2")
    assert after["gres"] == "gpu:8,lustre:2"
    assert notices == ("--sbatch gres=lustre:2 takes the place of gres=lustre:1 (cluster taiwania2: request.extra)",)
