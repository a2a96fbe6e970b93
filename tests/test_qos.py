"""QOS in a profile: read strictly, and held to their limits as Slurm does; what nobody knows is told and not refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rendering import planned as planned_
from test_planning import refused, variant

from hpc_llm.cli import run
from hpc_llm.errors import PlanError, ProfileError
from hpc_llm.planning.experiment import PlanWithOrigins
from hpc_llm.site.cluster import Cluster, load_cluster

PARTS = [
    {"name": "gpu", "max_time": "1-00:00:00", "max_nodes": 8, "max_gpus": 40, "default": True},
    {"name": "big", "max_time": "4-00:00:00"},
]
QOS: list[dict[str, Any]] = [
    {"name": "normal", "default": True, "max_time": "12:00:00"},
    {"name": "debug", "max_time": "00:30:00", "max_nodes": 2, "max_gpus_per_job": 12, "lifts": []},
    {"name": "long", "max_time": "2-00:00:00", "partitions": ["gpu"], "lifts": ["time", "nodes"]},
    {"name": "wide", "partitions": ["gpu"], "lifts": ["nodes", "gpus"], "max_nodes": 16},
    {"name": "vague", "max_time": "3-00:00:00"},
]


def site(complete: bool = True, **more: Any) -> Cluster:
    return variant("taiwania2", partitions=PARTS, qos=QOS, qos_complete=complete, **more)


def planned(cluster: str | Cluster, method: str, **words: Any) -> PlanWithOrigins:
    return planned_(cluster, method, set=("precision=fp16",), **words)  # or a V100 would have its notice


def asked(name: str, *more: str) -> dict[str, Any]:
    return {"sbatch": (f"qos={name}", *more)}


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            {**asked("debug"), "time": "01:00:00"},
            "time 01:00:00: qos debug of cluster taiwania2 allows 00:30:00. Ask for less with --time, or take a qos that "
            "allows it: --sbatch qos=normal or --sbatch qos=long or --sbatch qos=wide or --sbatch qos=vague.",
        ),
        ({**asked("DEBUG"), "nodes": 3, "gpus_per_node": 1}, "3 nodes: qos DEBUG of cluster taiwania2 allows 2 per job."),
        (
            {**asked("debug"), "nodes": 2},
            "2 x 8 = 16 GPUs: qos debug of cluster taiwania2 allows 12 per job. Ask for fewer nodes, or take a qos",
        ),
        (
            {"time": "13:00:00"},
            "time 13:00:00: qos normal of cluster taiwania2, which Slurm gives a job that names none, allows 12:00:00.",
        ),
        ({**asked("long"), "time": "3-00:00:00"}, "qos long of cluster taiwania2 allows 2-00:00:00. Ask for less with --time, "
         "or take both --partition big and --sbatch qos=vague."),
        (
            {**asked("wide"), "time": "2-00:00:00"},
            "partition gpu of cluster taiwania2 allows 1-00:00:00. Ask for less with --time, or take a qos that allows it: "
            "--sbatch qos=long.",
        ),
        ({**asked("debug"), "nodes": 9, "gpus_per_node": 1}, "9 nodes: qos debug"),
        ({"nodes": 9, "gpus_per_node": 1}, "9 nodes: partition gpu of cluster taiwania2 allows 8 per job. Ask for fewer with --nodes, "
         "or take a partition that allows it: big, or take a qos that allows it: --sbatch qos=long or --sbatch qos=wide."),
        ({**asked("wide"), "nodes": 17}, "17 nodes: qos wide of cluster taiwania2 allows 16 per job. Ask for fewer with --nodes, "
         "or take both --partition big and --sbatch qos=normal."),
        ({**asked("long"), "nodes": 6}, "6 x 8 = 48 GPUs: partition gpu of cluster taiwania2 allows 40 per user. Ask for fewer nodes, "
         "or take a qos that allows it: --sbatch qos=wide."),
        (
            {**asked("long"), "partition": "big"},
            "qos long is not for partition big of cluster taiwania2. Take --sbatch qos=normal or debug or vague, or --partition gpu.",
        ),
        (asked("lnog"), "there is no qos 'lnog' in partition gpu of cluster taiwania2: did you mean 'long'? Valid: debug, long, normal"),
        (asked("long,lnog"), "there is no qos 'lnog'"),
    ],
)  # fmt: skip
def test_limits_are_named_with_the_way_out(request_: dict[str, Any], said: str) -> None:
    refused(PlanError, said, site(), **request_)


def named_by_the_profile(name: str, **more: Any) -> Cluster:
    return variant(
        "taiwania2",
        partitions=PARTS,
        **{"qos": QOS, "qos_complete": True, **more, "request": {"extra": [f"--qos={name}"]}},
    )


def test_a_qos_that_the_profile_names_for_every_job_is_told_to_be_its() -> None:
    cluster = named_by_the_profile("long")
    said = (
        "qos long (request.extra of the profile) is not for partition big of cluster taiwania2. Take --sbatch qos=normal or debug or vague, "
        "or --partition gpu. What every job takes is changed in "
    )
    refused(PlanError, said, cluster, partition="big")
    refused(
        PlanError,
        "qos long of cluster taiwania2 (request.extra of the profile) allows 2-00:00:00",
        cluster,
        time="3-00:00:00",
    )
    assert planned(cluster, "z3", partition="big", **asked("normal")).plan.job.partition == "big"


def test_a_qos_for_no_partition_but_others_leaves_one_that_the_profile_does_not_know() -> None:
    only = [{"name": "long", "partitions": ["gpu"], "max_time": "1-00:00:00"}]
    refused(
        PlanError,
        "Take --partition gpu, or --sbatch qos=NAME with one that is for it",
        named_by_the_profile("long", qos=only, qos_complete=False),
        partition="big",
    )


def test_an_option_of_the_profile_that_sbatch_does_not_have_is_told() -> None:
    cluster = site(request={"extra": ["--fabric=3"]})
    told = [one for one in planned(cluster, "z3").notices if "--fabric" in one]
    assert told and told[0].startswith("request.extra of cluster taiwania2: --fabric is no option of sbatch")


@pytest.mark.parametrize(
    "request_",
    [
        {**asked("long"), "time": "2-00:00:00"},
        {**asked("long"), "nodes": 9, "gpus_per_node": 1},
        {**asked("wide"), "nodes": 16},
        {**asked("normal"), "time": "12:00:00"},
        {**asked("long,wide"), "time": "01:00:00"},
        {**asked("debug"), "time": "00:30:00", "gpus_per_node": 6, "nodes": 2},
    ],
)
def test_what_a_qos_allows_or_lifts_passes_in_silence(request_: dict[str, Any]) -> None:
    assert planned(site(), "z3", **request_).notices == ()


def test_whether_an_unknown_qos_lifts_a_limit_is_told_and_not_refused() -> None:
    said = "time 2-00:00:00: partition gpu of cluster taiwania2 allows 1-00:00:00, and whether qos vague lifts that is not known here"
    assert planned(site(), "z3", time="2-00:00:00", **asked("vague")).notices == (said,)
    bare = planned("taiwania2", "z3", partition="gtest", time="2-00:00:00", nodes=6, **asked("special"))
    assert bare.plan.job.time_s == 2 * 86400 and len(bare.notices) == 2
    assert (
        "6 x 8 = 48 GPUs: partition gtest of cluster taiwania2 allows 40 per user, and whether qos special"
        in bare.notices[0]
    )


def test_a_name_is_refused_only_where_the_list_is_complete() -> None:
    [said] = planned(site(complete=False), "z3", **asked("mine")).notices
    assert (
        said == "qos mine is none that the profile knows (normal, debug, long, wide, vague): its limits are not checked"
    )
    assert planned("taiwania2", "z3", **asked("mine")).notices == ()


def test_the_qos_of_request_extra_passes_the_same_check() -> None:
    cluster = site(request={"extra": ["--qos=debug"]})
    refused(
        PlanError,
        "time 01:00:00: qos debug of cluster taiwania2 (request.extra of the profile) allows 00:30:00.",
        cluster,
        time="01:00:00",
    )
    found = planned(cluster, "z3", time="01:00:00", **asked("long"))
    assert found.notices == ("--sbatch qos=long takes the place of qos=debug (cluster taiwania2: request.extra)",)


def test_a_partitions_default_comes_before_the_clusters() -> None:
    own = {"name": "gpu-default", "default": True, "partitions": ["gpu"], "max_time": "02:00:00"}
    cluster = variant("taiwania2", partitions=PARTS, qos=[*QOS, own])
    refused(PlanError, "qos gpu-default of cluster taiwania2, which Slurm gives", cluster, time="03:00:00")
    refused(PlanError, "time 13:00:00: qos normal", cluster, partition="big", time="13:00:00")
    assert planned(cluster, "z3", partition="big", time="12:00:00").notices == ()


def test_a_default_time_gives_way_to_the_qos() -> None:
    cluster = site(defaults={"time": "20:00:00"})
    found = planned(cluster, "z3", **asked("debug", "nice=1"), gpus_per_node=1)
    assert (found.plan.job.time_s, found.origins["time_s"]) == (1800, "cluster taiwania2: limit of the qos")
    found = planned(cluster, "z3", **asked("long"))
    assert found.plan.job.time_s == 20 * 3600


def test_partitions_are_advised_only_where_the_qos_allows_as_much_there() -> None:
    cluster = variant("taiwania2", partitions=PARTS, qos=[{"name": "n", "default": True, "lifts": []}])
    refused(PlanError, "or take a partition that allows it: big.", cluster, time="2-00:00:00")
    bound = [{"name": "n", "default": True, "max_time": "1-12:00:00"}]
    cluster = variant("taiwania2", partitions=PARTS, qos=bound)
    refused(PlanError, "allows 1-12:00:00. Ask for less with --time.", cluster, time="2-00:00:00")


def test_a_time_that_only_others_get_is_not_said_to_be_allowed_nowhere() -> None:
    gpu = {**load_cluster("taiwania2").gpu.model_dump(), "model": "H100 80GB HBM3", "arch": "sm_90", "memory_gib": 80.0}
    parts: list[dict[str, Any]] = [
        {"name": "short", "max_time": "01:00:00", "default": True},
        {"name": "hopper", "max_time": "2-00:00:00", "gpu": gpu, "max_nodes": 1},
    ]
    cluster = variant("taiwania2", partitions=parts)
    refused(PlanError, "--time, or take a partition with other GPUs that allows it: hopper.", cluster, time="30:00:00")
    refused(PlanError, "--time, or for fewer nodes or GPUs on a partition that allows it: hopper.", cluster, time="30:00:00", nodes=2)  # fmt: skip
    refused(PlanError, "--time, since no partition here allows it.", cluster, time="3-00:00:00")


def test_what_is_advised_allows_all_that_is_asked_for() -> None:
    """Neither `small`, which has the time, nor `tiny`, which has the time as well, would take that many nodes."""
    qos = [{"name": "short", "max_time": "00:10:00"}, {"name": "small", "max_nodes": 2}, {"name": "wide", "lifts": []}]
    tiny = {"name": "tiny", "max_time": "5-00:00:00", "max_nodes": 1}
    cluster = variant("taiwania2", partitions=[*PARTS, tiny], qos=qos)
    refused(PlanError, "allows 00:10:00. Ask for less with --time, or take a qos that allows it: --sbatch qos=wide.", cluster, time="01:00:00", nodes=3, **asked("short"))  # fmt: skip
    refused(PlanError, "allows 1-00:00:00. Ask for less with --time, or take a partition that allows it: big.", cluster, time="2-00:00:00", nodes=3)  # fmt: skip
    refused(PlanError, "take a partition that allows it: big, tiny.", cluster, time="2-00:00:00")


@pytest.mark.parametrize(
    ("amounts", "advised"),
    [
        ({"nodes": 9, "gpus_per_node": 1}, "--sbatch qos=long or --sbatch qos=wide."),
        ({"nodes": 9, "gpus_per_node": 1, "time": "1-12:00:00"}, "or take a qos that allows it: --sbatch qos=long."),
        (
            {"nodes": 9, "gpus_per_node": 1, "time": "3-00:00:00"},
            "or take both --partition big and --sbatch qos=vague.",
        ),
        (
            {"nodes": 6, "time": "10:00:00"},
            "take a partition that allows it: big, or take a qos that allows it: --sbatch qos=wide.",
        ),
        (
            {"nodes": 6, "time": "1-12:00:00"},
            "Ask for fewer nodes, or take both --partition big and --sbatch qos=vague.",
        ),
    ],
)
def test_a_qos_is_advised_for_a_size_only_where_the_time_fits_as_well(amounts: dict[str, Any], advised: str) -> None:
    with pytest.raises(PlanError) as caught:
        planned(site(), "z3", **amounts)
    assert str(caught.value).endswith(advised)


def test_a_default_time_stands_in_no_advices_way_since_it_gives_way_itself() -> None:
    cluster = site(defaults={"time": "20:00:00"})
    refused(PlanError, "--sbatch qos=long or --sbatch qos=wide.", cluster, nodes=9, gpus_per_node=1)
    found = planned(cluster, "z3", nodes=9, gpus_per_node=1, **asked("wide"))
    assert found.plan.job.time_s == 20 * 3600


def test_a_partition_is_advised_only_where_it_has_the_same_gpus() -> None:
    gpu = load_cluster("taiwania2").gpu.model_dump(mode="python")
    few = {"name": "few", "max_time": "5-00:00:00", "gpu": {**gpu, "per_node": 2}}
    cluster = variant("taiwania2", partitions=[*PARTS, few])
    refused(PlanError, "or take a partition that allows it: big.", cluster, time="2-00:00:00")


def test_without_a_scheduler_no_qos_counts() -> None:
    cluster = variant("mi210", qos=QOS[1:2], qos_complete=True)
    assert planned(cluster, "z3", scheduler="local", time="05:00:00", **asked("any")).plan.job.sbatch == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"qos": [{"name": "a"}, {"name": "A"}]}, "qos: a name comes twice in a, a"),
        ({"qos": [{"name": "a b"}]}, "'qos.0.name' is 'a b'"),
        ({"qos": [{"name": "a", "max_time": "soon"}]}, "'soon' is not a time"),
        ({"qos": [{"name": "a", "max_nodes": 0}]}, "'qos.0.max_nodes' is 0"),
        ({"qos": [{"name": "a", "max_gpu": 1}]}, "there is no key 'max_gpu' in qos: did you mean 'max_gpus_per_job'?"),
        ({"qos": [{"name": "a", "lifts": ["memory"]}]}, "'time', 'nodes' or 'gpus'"),
        ({"qos": [{"name": "a", "partitions": ["gpx"]}]}, "qos.partitions: there is no partition 'gpx'"),
        ({"qos": [{"name": "a", "default": True}, {"name": "b", "default": True}]}, "one of them can be the default, not a and b"),
        ({"qos_complete": True}, "qos_complete has no effect without qos"),
        ({"qos": QOS[:2], "qos_complete": True, "request": {"extra": ["--qos=x"]}}, "request.extra: there is no qos 'x'"),
    ],
)  # fmt: skip
def test_a_profile_is_read_strictly(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ProfileError) as caught:
        variant("taiwania2", **changes)
    assert said in str(caught.value)


def test_clusters_shows_them_and_the_schema_explains_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clusters").mkdir()
    qos = '[{name: short, max_time: "00:30:00", max_gpus_per_user: 40, default: true}, {name: long, lifts: [time], note: ask first}]'
    Path("clusters/mine.yaml").write_text(f"extends: taiwania2\nqos: {qos}\n")
    assert run(["clusters", "mine"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["short", "(default)", "00:30:00", "40", "all", "not", "known"] in lines
    assert ["long", "all", "time", "ask", "first"] in lines
    assert run(["clusters", "--schema"]) == 0
    assert "PartitionTimeLimit" in capsys.readouterr().out
    asked_for = ["--account", "ACD1", "--method", "z2", "--time", "01:00:00"]
    assert run(["render", "--cluster", "mine", *asked_for]) == 2
    assert (
        "qos short of cluster mine, which Slurm gives a job that names none, allows 00:30:00" in capsys.readouterr().err
    )
