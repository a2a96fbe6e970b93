"""Cluster profiles: nothing unknown, nothing of the wrong type, nothing missing, nothing without effect."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from checkout import ROOT
from hypothesis import given
from hypothesis import strategies as st

from hpc_llm.errors import ProfileError, RequestError
from hpc_llm.planning.schema import profile_schema
from hpc_llm.site.cluster import Cluster, load_cluster, parse_cluster
from hpc_llm.site.slurm_time import format_time, parse_time
from hpc_llm.text.yaml_text import read_yaml


def changed(cluster: str, place: str, value: Any) -> dict[str, Any]:
    """The data of a shipped profile with one dotted place set; `...` takes the key away."""
    data = copy.deepcopy(read_yaml(ROOT / "clusters" / f"{cluster}.yaml"))
    holder: Any = data
    *parts, last = place.split(".")
    for part in parts:
        holder = holder[int(part)] if part.isdigit() else holder.setdefault(part, {})
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    return data


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        # unknown keys: the place, the closest, all valid ones
        ("acount", {}, "there is no key 'acount' in the top level: did you mean 'account'? Valid: access, account,"),
        ("account.requird", True, "there is no key 'requird' in account: did you mean 'required'? Valid: default,"),
        ("gpu.capabilities.bf15", True, "there is no key 'bf15' in gpu.capabilities: did you mean 'bf16'?"),
        ("partitions.0.max_tme", "1", "there is no key 'max_tme' in partitions: did you mean 'max_time'?"),
        ("prelude.python.envs", "x", "there is no key 'envs' in prelude.python: did you mean 'env'?"),
        # missing
        ("title", ..., "'title' is missing: text is needed."),
        ("gpu.capabilities.nf4", ..., "'gpu.capabilities.nf4' is missing: true or false is needed."),
        ("partitions.0.max_time", ..., "'partitions.0.max_time' is missing: a time as HH:MM:SS, D-HH:MM:SS or"),
        ("gpu.model", ..., "'gpu': model is missing, a GPU of vendor 'nvidia' has it."),
        (
            "gpu.per_node",
            0,
            "'gpu': per_node is 0, and with vendor 'nvidia' a node has at least one GPU. For nodes without GPUs write vendor: none.",
        ),
        ("gpu.per_node", ..., "'gpu': per_node is missing, a GPU of vendor 'nvidia' has it."),
        ("prelude.python.env", ..., "'prelude.python': env is missing, kind 'conda' needs the folder"),
        # wrong types and values: what was found and what is allowed
        ("scheduler", "slrum", "there is no scheduler 'slrum': did you mean 'slurm'? Valid: auto, local, slurm."),
        ("gpu.arch", "gfx90a", "'gpu': arch gfx90a is AMD's, and vendor is 'nvidia'. Write vendor: amd."),
        ("gpu.vendor", "amd", "'gpu': arch sm_70 is NVIDIA's, and vendor is 'amd'. Write vendor: nvidia."),
        ("gpu.vendor", "intel", "valid are 'nvidia', 'amd', 'none' or 'auto'"),
        ("gpu.per_node", "8", "'gpu.per_node' is '8': a whole number is needed."),
        ("gpu.per_node", -1, "'gpu.per_node' is -1: it must be greater than or equal to 0."),
        ("gpu.memory_gib", "32", "'gpu.memory_gib' is '32': a number is needed."),
        ("gpu.capabilities.bf16", "no", "'gpu.capabilities.bf16' is 'no': true or false is needed."),
        ("gpu.capabilities.bf16", 0, "'gpu.capabilities.bf16' is 0: true or false is needed."),
        ("node.cpus", 0, "'node.cpus' is 0: it must be greater than 0."),
        ("node.cpus", 32.5, "'node.cpus' is 32.5: a whole number is needed"),
        ("account.required", "yes", "'account.required' is 'yes': true or false is needed."),
        ("account.pattern", "(", "'account.pattern' is '(': not a regular expression"),
        ("sources", [], "'sources' is []: at least 1 value is needed."),
        (
            "gpu.peak_tflops",
            {"fp16": 0},
            "fp16: 0 TFLOP/s are none: give the peak of the data sheet, or leave fp16 out.",
        ),
        ("sources", "a page", "'sources' is 'a page': a list is needed, as in [a, b]."),
        ("env.common.X", 5, "'env.common.X' is 5: text is needed"),
        ("status.checked", "last week", "'status.checked' is 'last week'"),
        ("schema", 2, "'schema' is 2: it must be 1."),
        ("name", "Tai wan", "'name' is 'Tai wan'"),
        ("partitions.0.max_time", "a day", "'a day' is not a time. Write HH:MM:SS, D-HH:MM:SS or minutes."),
        (
            "partitions.0.max_time",
            86400,
            "'partitions.0.max_time' is 86400: a time as HH:MM:SS, D-HH:MM:SS or (in quotes) minutes is needed.",
        ),
        ("defaults.time", "soon", "'defaults.time' is 'soon': 'soon' is not a time."),
        ("defaults.steps", 0, "'defaults.steps' is 0: it must be greater than 0."),
        ("launch.single_node", "ibrun", "there is no launcher 'ibrun': did you mean 'mpirun'? Valid: mpirun,"),
        (
            "launch",
            {"single_node": "ibrun", "multi_node": "ibrun", "allowed": ["ibrun"]},
            "'launch.single_node', 'launch.multi_node' and 'launch.allowed.0' are 'ibrun': there is no launcher 'ibrun': did you",
        ),
        ("launch.allowed", ["srun"], "single_node is 'mpirun', which is not in allowed: srun. Add it there"),
        # what would be silently without effect, or would break the job
        (
            "launch.srun_args",
            ["--mpi=none", "--nodes=7"],
            "srun_args holds --nodes=7: the plan decides how many nodes and tasks there are.",
        ),
        ("launch.srun_args", ["-n", "1"], "srun_args holds -n: the plan decides"),
        *(
            ("launch.srun_args", words, f"srun_args holds {words[-1] if words[0] == '--label' else words[0]}: {why}")
            for why, several in {
                "the plan decides how long a job takes": (["--time=1"], ["-t", "1"]),
                "the run's records need the tasks' output and folder": (
                    ["--output=x"],
                    ["-o", "x"],
                    ["-uox"],
                    ["--err", "x"],
                    ["--chdir=/x"],
                    ["-D/x"],
                ),
                "no rank would be started": (
                    ["--test-only"],
                    ["--help"],
                    ["--multi-prog"],
                    ["--jobid=5"],
                    ["--pty"],
                    ["-V"],
                ),
                "the ranks need the job's variables": (["--export=NONE"], ["--export", "NONE"], ["--expo=A"]),
                "srun would begin its program there": (
                    ["echo"],
                    ["--label", "echo"],
                    ["--label", "--"],
                    ["--label", "-c8", "8"],
                    ["--label", "-c", "8", "8"],
                ),
            }.items()
            for words in several
        ),
        (
            "request.constraint",
            "a b",
            "constraint is 'a b': sbatch does not know that. Valid: names of features without blanks",
        ),
        ("slurm_cluster", 5, "'slurm_cluster' is 5: text or a list (as in [a, b]) is needed."),
        ("partitions.1.name", "gtest", "partitions: a name comes twice in gtest, gtest,"),
        ("partitions.1.default", True, "partitions: one of them can be the default, not several."),
        (
            "prelude.module_system",
            "none",
            "'prelude': init has no effect with module_system 'none', leave it out (init: null where it is inherited)",
        ),
        ("prelude.python.kind", "current", "env has no effect with kind 'current', leave it out (env: null where"),
        ("request.forbid", ["--gres"], "'request.forbid.0' is '--gres'"),
        ("request.forbid", ["export"], "forbid holds 'export', by which export 'none' is asked for: write export: all"),
        ("request.forbid", ["output"], "forbid holds 'output', which every job is submitted with: leave it out"),
        (
            "request.extra",
            ["-N 2"],
            "request.extra holds --nodes: the plan has to know it. Leave it out, for each request decides.",
        ),
        ("request.extra", ["--nodes=7", "--time=99:00:00"], "request.extra holds --nodes: the plan has to know it."),
        (
            "request.extra",
            ["--time=99:00:00"],
            "request.extra holds --time: the plan has to know it. Use defaults.time.",
        ),
        ("request.extra", ["-p", "gp4d"], "request.extra holds --partition: the plan has to know it. Use partitions"),
        (
            "request.extra",
            ["--tim=9"],
            "request.extra holds --tim: sbatch reads it as the beginning of --time or --time-min.",
        ),
        (
            "request.extra",
            ["--gres=gpu:8"],
            "request.extra holds --gres: the plan has to know it. Use gpu.per_node and request.gpu_style.",
        ),
        (
            "request.extra",
            ["--cpus-per-task=4"],
            "request.extra holds --cpus-per-task: the plan has to know it. Use node.cpus_per_gpu.",
        ),
        ("request.extra", ["--account=x"], "Use account.default."),
        ("request.extra", ["--overcommit"], "request.extra holds --overcommit: Slurm then counts the CPUs"),
        (
            "request.extra",
            ["--output=/x"],
            "request.extra holds --output: hpc-llm sets --output itself, because tracking relies on it.",
        ),
        (
            "request.extra",
            ["--signal=B:USR1@60"],
            "request.extra holds --signal: nothing in the job acts on a signal before the end. Leave it out, and ask for enough time with defaults.time.",
        ),
        ("request.extra", ["--sig=USR1"], "request.extra holds --sig: sbatch reads it as the beginning of --signal."),
        ("request.extra", ["--qos=a", "--qos=b"], "request.extra holds --qos is given twice: qos=a and qos=b."),
        (
            "request.extra",
            ["--hint nomultithread"],
            "not a long sbatch option. Write it as in sbatch's manual, e.g. --qos=high.",
        ),
        (
            "request",
            {"gpu_style": "gres", "constraint": "a", "extra": ["--constraint=b"]},
            "request.extra holds --constraint, which request.constraint asks for. Keep one of them (request.constraint: null",
        ),
        (
            "request",
            {"gpu_style": "gres", "exclusive": True, "extra": ["--exclusive=user"]},
            "request.extra holds --exclusive, which request.exclusive asks for.",
        ),
        (
            "request",
            {"gpu_style": "gres", "memory": "mem", "extra": ["--mem=0"]},
            "request.extra holds --mem, but request.memory asks for memory.",
        ),
        (
            "request",
            {"gpu_style": "gres", "forbid": ["hint"], "extra": ["--hint=x"]},
            "request.extra holds --hint: request.forbid refuses --hint.",
        ),
        (
            "request",
            {"gpu_style": "none", "gpu_type": "a"},
            "gpu_type has no effect with gpu_style 'none', leave it out",
        ),
        ("env.common", {"A B": "1"}, "'A B' is not a name of an environment variable"),
        (
            "env.common",
            {"run_dir": "/x"},
            "the variable run_dir is the job script's own, or changes how bash reads it. Leave it out.",
        ),
        ("env.multi_node", {"X;touch y": "1"}, "is not a name of an environment variable"),
        ("env.per_job_dirs", {"A": "../../home"}, "'../../home' is not the plain name of a folder"),
        ("env.per_job_dirs", {"A": ".."}, "'..' is not the plain name of a folder"),
        ("env.unset", ["A; touch x"], "'A; touch x' is not a name of an environment variable"),
        ("env.unset", ["IFS"], "the variable IFS is the job script's own"),
        ("env.common", {"BASH_ENV": "/x"}, "the variable BASH_ENV is the job script's own"),
        ("env.common", {"PROMPT_COMMAND": "x"}, "the variable PROMPT_COMMAND is the job script's own"),
        (
            "access",
            {"proxy_env": {"https_proxy": "http://p"}},
            "proxy_env has no effect with internet_compute 'unknown', leave it out",
        ),
        ("access", {"internet_compute": "proxy"}, "proxy_env is missing, internet_compute 'proxy' needs"),
        (
            "access",
            {"internet_compute": "proxy", "proxy_env": {"a-b": ""}},
            "'a-b' is not a name of an environment variable",
        ),
    ],
)
def test_a_wrong_profile_is_told_file_key_and_what_is_allowed(place: str, value: Any, said: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_cluster(changed("taiwania2", place, value), "t.yaml")
    assert str(caught.value).startswith("t.yaml: ")
    assert said in str(caught.value)
    assert "pydantic" not in str(caught.value).lower()


def test_a_memory_flag_needs_what_it_is_computed_from() -> None:
    with pytest.raises(ProfileError, match=r": node\.mem_gb_per_gpu is missing, from which request\.memory 'mem' is"):
        parse_cluster(changed("delta", "node", {"cpus": 64}), "d.yaml")
    data = changed("delta", "request.memory", "mem-per-cpu")
    data["node"] = {"mem_gb_per_gpu": 62.5}
    with pytest.raises(
        ProfileError, match=r": node\.cpus_per_gpu is missing, from which request\.memory 'mem-per-cpu' is"
    ):
        parse_cluster(data, "d.yaml")


def test_a_partition_whose_own_node_lacks_memory_is_named() -> None:
    data = changed("delta", "request.memory", "mem-per-cpu")
    data["partitions"][1]["node"] = {"cpus": 64}
    with pytest.raises(ProfileError) as caught:
        parse_cluster(data, "d.yaml")
    place = (
        f"partition {data['partitions'][1]['name']}: node.mem_gb_per_gpu and node.cpus_per_gpu are missing, from which"
    )
    assert place in str(caught.value) and "takes the place of the whole node above" in str(caught.value)


def test_several_mistakes_are_told_at_once() -> None:
    data = changed("taiwania2", "title", ...) | {"scheduler": 5, "typo": 1}
    with pytest.raises(ProfileError) as caught:
        parse_cluster(data, "t.yaml")
    for part in ("'title' is missing", "'scheduler' is 5", "there is no key 'typo'"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("90:30", 5430), ("1:30:00", 5400), ("24:00:00", 86400), ("96:00:00", 345600),
        ("2-0", 172800), ("2-12", 216000), ("2-12:30", 217800), ("2-00:00:01", 172801), (" 00:30:00 ", 1800),
    ],
)  # fmt: skip
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1:2:3:4", "1-", "1d", "00:30:00x", "٣", "1-1-1", "1.5", "30\n:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"is not a time\. Write HH:MM:SS"):
        parse_time(text)


@pytest.mark.parametrize("text", ["25:61", "1:60:00", "00:30:99", "1-00:75"])
def test_minutes_and_seconds_behind_a_colon_go_to_59(text: str) -> None:
    with pytest.raises(RequestError, match=r"'[\d:-]+' is not a time: \d\d minutes or seconds .* Write HH:MM:SS"):
        parse_time(text)


@given(st.integers(min_value=0, max_value=400 * 86400))
def test_a_time_survives_being_written(seconds: int) -> None:
    assert parse_time(format_time(seconds)) == seconds


# --- the JSON schema ------------------------------------------------------------------------------------------------


def accepts(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> str:
    """'' where `value` fits the JSON schema, else why not: the part of the standard that pydantic writes."""
    if "$ref" in schema:
        return accepts(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], value, root)
    if "anyOf" in schema:
        reasons = [accepts(part, value, root) for part in schema["anyOf"]]
        return "" if "" in reasons else reasons[0]
    if "if" in schema:
        return accepts(schema["else" if accepts(schema["if"], value, root) else "then"], value, root)
    if "const" in schema and value != schema["const"]:
        return f"{value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{value!r} is not one of {schema['enum']}"
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "null": type(None)}
    kind = schema.get("type")
    if kind == "number" and (isinstance(value, bool) or not isinstance(value, (int, float))):
        return f"{value!r} is no number"
    if kind in types and (not isinstance(value, types[kind]) or (kind == "integer" and isinstance(value, bool))):
        return f"{value!r} is no {kind}"
    if isinstance(value, dict):
        known, extra = schema.get("properties", {}), schema.get("additionalProperties", True)
        for key in schema.get("required", []):
            if key not in value:
                return f"{key} is missing"
        for key, item in value.items():
            if key not in known and extra is False:
                return f"{key} is unknown"
            part = known.get(key, extra if isinstance(extra, dict) else {})
            if reason := accepts(part, item, root):
                return f"{key}: {reason}"
    if isinstance(value, list) and kind == "array":
        return next((reason for item in value if (reason := accepts(schema.get("items", {}), item, root))), "")
    return ""


@pytest.mark.parametrize("path", sorted((ROOT / "clusters").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_schema_accepts_the_shipped_profiles(path: Any) -> None:
    schema = json.loads(json.dumps(profile_schema(Cluster)))
    assert accepts(schema, read_yaml(path), schema) == ""


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        ("typo", 1, "typo is unknown"),
        ("gpu.typo", 1, "typo is unknown"),
        ("title", ..., "title is missing"),
        ("scheduler", "pbs", "is not one of"),
        ("gpu.per_node", "8", "is no integer"),
    ],
)
def test_the_schema_refuses_what_the_model_refuses(place: str, value: Any, why: str) -> None:
    schema = profile_schema(Cluster)
    assert why in accepts(schema, changed("taiwania2", place, value), schema)


def test_the_schema_accepts_a_profile_that_extends_another() -> None:
    schema = profile_schema(Cluster)
    mine = {"title": "mine", "prelude": {"load": ["one"]}, "partitions": [{"name": "p"}]}
    assert accepts(schema, {"extends": "taiwania2", **mine}, schema) == ""
    assert "is missing" in accepts(schema, mine, schema)
    assert accepts(schema, {"extends": "taiwania2", "titel": "mine"}, schema) == "titel is unknown"
    assert "is no integer" in accepts(schema, {"extends": "taiwania2", "gpu": {"per_node": "8"}}, schema)


def test_the_schema_explains_its_fields() -> None:
    schema = profile_schema(Cluster)
    assert schema["$defs"]["Gpu"]["properties"]["memory_gib"]["description"].startswith(
        "Device memory, GiB, as nvidia-smi"
    )
    cluster = schema["$defs"]["Cluster"]["properties"]
    assert cluster["partitions"]["description"].startswith("Empty: the site's partitions are not known")
    assert cluster["schema"]["const"] == 1


# --- what the sources say, by clusters ------------------------------------------------------------------------------


def test_taiwania2_is_what_its_documentation_says() -> None:
    cluster = load_cluster("taiwania2")
    limits = {p.name: (parse_time(p.max_time) // 60, p.max_gpus) for p in cluster.partitions}
    assert limits == {
        "gtest": (30, 40), "gp1d": (24 * 60, 40), "gp2d": (48 * 60, 40), "gp4d": (96 * 60, 40), "express": (96 * 60, 256),
    }  # fmt: skip
    assert cluster.partition(None) is not None and cluster.partition(None).name == "gp2d"  # type: ignore[union-attr]
    can = cluster.gpu.capabilities
    assert can is not None and not (can.bf16 or can.flash_attention_2 or can.int8 or can.tf32) and can.nf4
    assert (cluster.gpu.per_node, cluster.gpu.memory_gib, cluster.node.cpus_per_gpu) == (8, 32, 4)
    assert cluster.account.required and cluster.account.list_command == "wallet"


def test_delta_resets_and_never_purges() -> None:
    cluster = load_cluster("delta")
    assert cluster.prelude.start == "reset"
    a100x8, h200 = cluster.partition("gpuA100x8"), cluster.partition("gpuH200x8")
    assert a100x8 is not None and cluster.gpu_of(a100x8).per_node == 8
    assert h200 is not None and h200.max_nodes == 1 and cluster.gpu_of(h200).memory_gib == 140
    assert cluster.node_of(h200).cpus_per_gpu == 12


def test_mi210_chooses_its_devices_only_without_slurm() -> None:
    cluster = load_cluster("mi210")
    assert cluster.scheduler == "auto" and cluster.partitions == []
    assert cluster.env.local == {"HIP_VISIBLE_DEVICES": "1,2"}
    assert not any(name.endswith("VISIBLE_DEVICES") for name in {**cluster.env.common, **cluster.env.single_node})
