"""What is refused, in words of who asked: where it is to be said, what is meant, and what a number means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from rendering import planned

import hpc_llm
from hpc_llm.api.batches import Places, batches
from hpc_llm.api.request import read_request
from hpc_llm.cli import run
from hpc_llm.cli.plan_text import differences
from hpc_llm.diagnosis.case import Case
from hpc_llm.diagnosis.more_time import walltime
from hpc_llm.diagnosis.remedies import module_missing
from hpc_llm.errors import HpcLlmError, PlanError, ProfileError, RequestError
from hpc_llm.planning.settings import read_setting
from hpc_llm.site.cluster import load_cluster, parse_cluster


def refused(experiment: Any = None, **options: Any) -> str:
    with pytest.raises(RequestError) as caught:
        read_request(experiment, options, beside={})
    return str(caught.value)


@pytest.mark.parametrize("name", ["logs", "run-id", "force", "templates"])
def test_an_option_of_the_call_in_a_file_is_sent_there(name: str) -> None:
    assert f"--{name} on the command line" in refused({name: "x"}) or f"--{name}, not in a file" in refused({name: "x"})
    assert "env_file" not in refused({"stepz": 3}) and "did you mean 'steps'?" in refused({"stepz": 3})


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("time", "use --time"),
        ("lr", "optimizer.lr"),
        ("learning_rate", "optimizer.lr"),
        ("weight_decay", "optimizer.weight_decay"),
        ("zero_optimization.stage", "deepspeed.zero_optimization.stage"),
        ("gradient_clipping", "deepspeed.gradient_clipping"),
        ("job-name", "job_name"),
    ],
)
def test_a_path_of_elsewhere_is_led_to_the_plan(path: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_setting(f"{path}=1")
    assert said in str(caught.value)


def test_true_and_false_are_written_small() -> None:
    with pytest.raises(RequestError, match=r"write true or false, in small letters\. The default is false"):
        planned("local", "z3", set=("keeps_parameters=True",))


@pytest.mark.parametrize(
    ("file", "options"),
    [
        (None, {"steps": 9, "set": ["steps=7"]}),
        (None, {"steps": 9, "set": ["workload.steps=7"]}),
        ({"steps": 9, "set": {"steps": 7}}, {}),
        ({"set": {"seed": 1}, "seed": 2}, {}),
    ],
)
def test_one_place_that_says_two_things_of_a_field_is_refused(file: Any, options: dict[str, Any]) -> None:
    assert "say two things of" in refused(file, **options)


def test_an_option_wins_over_the_setting_of_a_file_and_a_setting_over_its_option() -> None:
    flag = read_request({"set": {"steps": 7, "seed": 1}}, {"steps": 9}, beside={})
    assert (flag.values["steps"], flag.values["set"]) == (9, ["seed=1"])
    setting = read_request({"steps": 9}, {"set": ["steps=7"]}, beside={})
    assert setting.values["set"] == ["steps=7"]
    assert read_request(None, {"steps": 7, "set": ["steps=7"]}, beside={}).values["steps"] == 7


@pytest.mark.parametrize(
    ("word", "said"), [("z3", "--method z3"), ("z3+o", "--method z3+o"), ("delta", "--cluster delta")]
)
def test_a_second_word_after_an_option_is_no_file(word: str, said: str) -> None:
    assert said in refused(word)
    with pytest.raises(HpcLlmError, match="nothing-of-that-name"):
        read_request("nothing-of-that-name.yaml", {}, beside={})


@pytest.mark.parametrize(("time", "said"), [("00:30", "time 00:30 is 00:00:30"), ("1:00", "time 1:00 is 00:01:00")])
def test_a_time_of_two_parts_says_what_slurm_reads(time: str, said: str) -> None:
    assert any(notice.startswith(said) for notice in planned("taiwania2", "z3", time=time).notices)
    for other in ("00:30:00", "30", "1-00"):
        assert not any(notice.startswith("time ") for notice in planned("taiwania2", "z3", time=other).notices)


def test_data_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    for data, said in (
        (tmp_path / "empty.txt", "it is empty"),
        (tmp_path / "no", "no such file"),
    ):
        request = read_request(None, {"cluster": "local", "method": "z3", "data": [str(data)]}, beside={})
        with pytest.raises(RequestError, match=said):
            batches(request, Places(logs=tmp_path), preview=True)


def profile(**changes: Any) -> dict[str, Any]:
    data = load_cluster("taiwania2").model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    return {**data, "name": "mine", **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"account": "ACD1"}, "'account' is 'ACD1': a mapping is needed"),
        ({"sources": "here"}, "'sources' is 'here': a list is needed"),
        ({"title": 5}, "'title' is 5: text is needed"),
        ({"qos_complete": "yes"}, "'qos_complete' is 'yes': true or false is needed"),
        ({"node": {"cpus": "many"}}, "'node.cpus' is 'many': a whole number is needed"),
        ({"request": {"gpu_style": "none", "memory": "mem-per-gpu"}}, "needs GPUs that are asked for"),
        ({"request": {"gpu_style": "gres", "extra": ["-S 0"]}}, "request.extra holds -S 0"),
    ],
)
def test_a_profile_that_is_wrong_is_told_in_its_own_words(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_cluster(profile(**changes), "mine.yaml")
    assert (
        said in str(caught.value) and "instance of" not in str(caught.value) and "input should" not in str(caught.value)
    )


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"cpus": 16, "cpus_per_gpu": 4}, "node.cpus_per_gpu for 8 GPUs is 32, and node.cpus says that a node has 16"),
        ({"mem_gb": 100, "mem_gb_per_gpu": 50}, "node.mem_gb_per_gpu for 8 GPUs is 400"),
    ],
)
def test_a_profile_that_asks_for_more_than_its_node_has_is_refused(node: dict[str, Any], said: str) -> None:
    mine = profile(
        node=node, request={"gpu_style": "gres", "memory": "mem" if "mem_gb" in node else "omit"}, partitions=[]
    )
    with pytest.raises(PlanError, match=said):
        planned(parse_cluster(mine, "mine.yaml"), "z3", account="ACD110018", gpus_per_node=8)
    planned(parse_cluster(mine, "mine.yaml"), "z3", account="ACD110018", gpus_per_node=1)


def test_gpus_by_an_option_where_the_plan_counts_none_are_told() -> None:
    bare = profile(gpu={"vendor": "none"}, request={"gpu_style": "none"}, partitions=[], node={})
    found = planned(parse_cluster(bare, "mine.yaml"), "z3", account="ACD110018", sbatch=("gres=gpu:1",))
    assert any("--sbatch gres=gpu:1: the profile of cluster mine has no GPU" in notice for notice in found.notices)


def test_a_method_that_settings_made_another_is_not_called_by_its_name_alone(tmp_path: Path) -> None:
    found = planned("local", "z3", set=("deepspeed.zero_optimization.stage=0",))
    assert any("method z3 does what ddp does: tables name it 'z3 as ddp'" in notice for notice in found.notices)
    for one, said in (
        (found, "z3 as ddp"),
        (planned("local", "z3", set=("steps=9",)), "z3"),
        (planned("local", "z3+o"), "z3+o"),
    ):
        record = {"schema": 1, "plan": one.plan.to_dict(), "origins": one.origins}
        run = make_run(tmp_path, said.replace(" ", "-"), record, "#!/bin/bash\n")
        assert [row.method for row in hpc_llm.parse(run.root)] == [said]
        assert [status.method for status in hpc_llm.status(run.root)] == [said]


def test_a_mapping_that_is_new_is_told_once() -> None:
    told = list(differences({"a": None, "b": 1}, {"a": {"kind": "nf4", "x": 1}, "b": 1}))
    assert [line.partition(":")[0] for line in told] == ["a.kind", "a.x"]
    assert len(list(differences({"a": None}, {"a": {}}))) == 1


@pytest.mark.parametrize("time_s", [5, 300])
def test_a_time_limit_within_which_nothing_starts_is_called_short(time_s: int) -> None:
    [line] = walltime(Case(plan=planned("taiwania2", "z3").plan.changed(time_s=time_s)))
    assert line.startswith("--time 00:10:00  (it had 00:0")
    [other] = walltime(Case(plan=planned("taiwania2", "z3").plan.changed(time_s=3600)))
    assert "--time" not in other


def test_a_module_that_is_missing_is_named_with_its_cluster() -> None:
    lines = module_missing({"module": "cuda/99.9", "cluster": "taiwania2"})
    assert "module spider cuda" in lines[0] and "taiwania2" in lines[0] and "cuda/99.9" in lines[1]
    [elsewhere] = module_missing({"module": "cuda/99.9"})
    assert "module spider cuda" in elsewhere and "cuda/99.9 in the script" in elsewhere and "profile" not in elsewhere
    assert module_missing({"cluster": "taiwania2"}) == []


def test_runs_one_folder_deeper_are_named_by_every_command(tmp_path: Path) -> None:
    make_run(tmp_path / "later", "some-run", {"schema": 1, "plan": {}}, "#!/bin/bash\n")
    for verb in (hpc_llm.logs, hpc_llm.diagnose, hpc_llm.status):
        with pytest.raises(RequestError, match="later holds 1: --logs"):
            verb("some-run", logs=tmp_path)


def test_more_gpus_than_a_partition_has_lead_to_the_one_that_has_them() -> None:
    with pytest.raises(PlanError) as caught:
        planned("delta", "z3", account="bxyz-delta-gpu", gpus_per_node=8)
    assert "Choose --gpus-per-node 1..4, or a partition with as many: --partition gpuA100x8." in str(caught.value)


def test_a_value_of_a_profile_is_written_as_the_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/own.yaml").write_text(
        "extends: delta\nname: own\nprelude: {use: null}\naccess: {internet_compute: null}\n"
    )
    with pytest.raises(ProfileError) as caught:
        load_cluster("own")
    assert "'prelude.use' is null: " in str(caught.value) and "is None" not in str(caught.value)


def test_two_ways_to_write_one_setting_in_a_mapping_are_refused() -> None:
    said = refused({"set": {"optimizer.lr": 1e-3, "optimizer": {"lr": 2e-3}}})
    assert "optimizer.lr=0.001 and optimizer.lr=0.002 say two things of one setting" in said
    read_request({"set": {"optimizer.lr": 1e-3, "optimizer": {"lr": 1e-3}}, "cluster": "local"}, {}, beside={})


def test_python_is_told_what_a_call_lacks_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"report needs paths: call it as report\(paths=…\)"):
        hpc_llm.report()  # type: ignore[call-arg]
    with pytest.raises(RequestError, match=r"in Python logs=DIR"):
        hpc_llm.status("nope", logs=tmp_path)


def test_a_cluster_without_gpus_says_nothing_of_what_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/own.yaml").write_text("extends: taiwania2\nname: own\ngpu: {vendor: none}\n")
    assert run(["clusters", "own"]) == 0
    shown = capsys.readouterr().out
    assert "GPUs" in shown and "flash_attention_2" not in shown
