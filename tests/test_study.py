"""Studies: one file, many runs. What each run becomes, what is refused, and that nothing is planned by halves."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from pace import is_within

import hpc_llm
from hpc_llm.cli import run
from hpc_llm.errors import RequestError
from hpc_llm.estimating.parts import Fit
from hpc_llm.planning.experiment import PlanWithOrigins
from hpc_llm.planning.reference import units_of

BASE: dict[str, Any] = {"cluster": "taiwania2", "account": "ACD1", "model": "tiny", "steps": 20}
REFERENCE = {"value": 5000, "unit": "tokens/s", "source": "a table", "hardware": "8 x V100-SXM2-32GB"}

Write = Callable[..., str]


@pytest.fixture
def write(own_folder: Path) -> Write:
    """`write(matrix=…, runs=…)`: the path of a study over BASE."""

    def make(**content: Any) -> str:
        Path("study.yaml").write_text(yaml.safe_dump({**BASE, **content}, sort_keys=False))
        return "study.yaml"

    return make


def names(planned: list[PlanWithOrigins]) -> list[str]:
    return [one.study.name for one in planned if one.study]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["render", *words]) == 2
    found = capsys.readouterr()
    assert found.out == "" and found.err.count("\n") == 1
    return found.err.removeprefix("hpc-llm: ")


def test_a_matrix_is_all_combinations_over_options_and_fields(write: Write) -> None:
    file = write(matrix={"method": ["z2", "z3"], "micro-batch-size": [1, 2], "set.optimizer.lr": [1e-3, 2e-3]})
    planned = hpc_llm.plan(file)
    found = [(p.plan.method, p.plan.batch.micro_batch_size, p.plan.optimizer.lr) for p in planned]
    assert found == [(m, b, lr) for m in ("z2", "z3") for b in (1, 2) for lr in (1e-3, 2e-3)]
    assert names(planned)[1] == "z2,micro_batch_size=1,lr=0.002"
    assert len(set(names(planned))) == 8
    assert planned[0].origins["micro_batch_size"] == planned[0].origins["steps"] == "study.yaml"


@pytest.mark.parametrize(
    ("axis", "values", "field"),
    [
        ("model", ["tiny", "llama2-7b"], "model.name"),
        ("cluster", ["taiwania2", "mi210"], "cluster"),
        ("sbatch", [{"constraint": "a"}, {"constraint": "b"}], "job.sbatch"),
        ("set", [{"attention": "sdpa"}, {"attention": "eager"}], "model.attention"),
        ("set.env.OMP_PROC_BIND", ["true", "false"], "job.env"),
        ("set.deepspeed.zero_optimization.sub_group_size", [1e8, 2e8], "engine.deepspeed"),
        ("set.batch.micro_batch_size", [1, 3], "batch.micro_batch_size"),
        ("nodes", [1, 2], "parallel.nodes"),
        ("time", ["00:10:00", "00:20:00"], "job.time_s"),
    ],
)
def test_any_option_and_any_field_can_be_an_axis(write: Write, axis: str, values: list[Any], field: str) -> None:
    planned = hpc_llm.plan(write(method="z3", matrix={axis: values}))
    found: list[Any] = [one.plan.to_dict() for one in planned]
    for part in field.split("."):
        found = [one[part] for one in found]
    assert len(found) == 2 and found[0] != found[1]


def test_entries_drop_add_and_enrich_combinations(write: Write) -> None:
    planned = hpc_llm.plan(
        write(
            matrix={"method": ["z2", "z3", "q"], "steps": [20, 30]},
            exclude=[{"method": "q", "steps": 30}],
            include=[
                {"method": "z3", "expect": "OOM_DEVICE"},  # of both runs with z3
                {"method": "z2", "steps": 30, "sequence-length": 64},  # of one
                {"method": "z2o", "steps": 30},  # one more
            ],
            runs=[{"name": "alone", "method": "ddp", "model": "tiny"}],
        )
    )
    found = {(p.plan.method, p.plan.workload.steps): p for p in planned}
    assert len(found) == len(planned) == 7 and ("q", 30) not in found and ("z2o", 30) in found
    assert {k for k, p in found.items() if p.study and p.study.expect == "OOM_DEVICE"} == {("z3", 20), ("z3", 30)}
    assert found["z2", 30].plan.batch.sequence_length == 64 != found["z2", 20].plan.batch.sequence_length
    assert names(planned)[-1] == "alone"


def test_a_list_at_the_top_and_in_the_matrix_is_refused(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, write(method=["z2", "ddp"], matrix={"method": ["z3"], "seed": [1, 2]}))
    assert (
        said == "study.yaml: method is a list at the top and in matrix, whose values count alone. Keep one of them.\n"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"method": "z2", "matrix": {"method": ["z3", "ddp"]}}, "method z2 at the top is that of no run, for matrix says method"),
        ({"method": ["z2"], "matrix": {"method": ["z3"]}}, "method z2 at"),
        ({"method": "z2", "matrix": {"steps": [30, 40]}}, "steps 20 at"),
        ({"method": "z2", "set": {"optimizer.lr": 1e-3}, "matrix": {"set.optimizer.lr": [2e-3]}}, "set.optimizer.lr 0.001 at"),
        ({"method": "z2", "set": {"lr_schedule": "cosine"}, "matrix": {"set.lr_ramp_steps": [4, 5]}}, None),
        ({"method": "z2", "matrix": {"method": ["z3"]}, "runs": [{"method": "q", "name": "x"}]}, "method z2 at"),
        ({"method": "z2", "matrix": {"method": ["z3"]}, "runs": [{"steps": 30, "name": "x"}]}, None),
        ({"method": "z2", "matrix": {"method": ["z3"]}, "include": [{"steps": 30}]}, None),
        ({"method": "z2", "matrix": {"method": ["z2", "z3"]}}, None),
        ({"method": ["z2"], "matrix": {"method": ["z2", "z3"]}}, None),
    ],
)  # fmt: skip
def test_an_option_at_the_top_that_is_of_no_run_is_told(
    write: Write, content: dict[str, Any], said: str | None
) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        hpc_llm.plan(write(**content))
    found = [text for one in told if "at the top" in (text := str(one.message))]
    assert len(found) == (said is not None) and all(f"study.yaml: {said}" in text for text in found)


def test_lists_at_the_top_are_axes_of_a_matrix_and_sweep_the_other_runs(write: Write) -> None:
    file = write(method=["z2", "z3"], matrix={"seed": [1, 2]}, exclude=[{"method": "z3", "seed": 2}])
    assert names(hpc_llm.plan(file)) == ["z2,seed=1", "z2,seed=2", "z3,seed=1"]
    swept = hpc_llm.plan(write(method="z2,z3", runs=[{"name": "a", "seed": 1}, {"name": "b", "seed": 2}]))
    assert names(swept) == ["a,z2", "a,z3", "b,z2", "b,z3"]


def test_lists_at_the_top_are_axes_without_a_matrix_too(write: Write) -> None:
    dropped = write(method=["z2", "z3"], cluster=["taiwania2", "mi210"], exclude=[{"method": "z3", "cluster": "mi210"}])
    assert names(hpc_llm.plan(dropped)) == ["taiwania2,z2", "taiwania2,z3", "mi210,z2"]
    added = hpc_llm.plan(write(method=["z2", "z3"], include=[{"method": "z3", "expect": "TIMEOUT"}, {"method": "q"}]))
    assert [(p.plan.method, p.study.expect) for p in added if p.study] == [("z2", None), ("z3", "TIMEOUT"), ("q", None)]


def test_the_study_of_the_docs_is_one(own_folder: Path) -> None:
    text = (ROOT / "docs" / "running.md").read_text()
    Path("hpc2.yaml").write_text(text[text.index("# hpc2.yaml") :].partition("```")[0])
    plans = hpc_llm.plan("hpc2.yaml")
    assert len(plans) == len(hpc_llm.plan("hpc2.yaml", smoke=True)) == 23
    verdicts = [one.verdict for one in hpc_llm.estimate("hpc2.yaml")]
    expected = [one.study is not None and one.study.expect == "OOM_DEVICE" for one in plans]
    assert [verdict is Fit.DOES_NOT_FIT for verdict in verdicts] == expected and any(expected)
    assert all(verdict is not Fit.TOO_CLOSE for verdict in verdicts)  # what is taught is certain


def test_the_example_of_scaling_keeps_the_batch_of_a_gpu_and_the_batch_of_all() -> None:
    planned = hpc_llm.plan(ROOT / "examples" / "scaling.yaml", account="bbka-delta-gpu")
    weak, strong = (
        [one.plan for one in planned if one.study and one.study.name.startswith(kind)] for kind in ("nodes=", "strong-")
    )
    assert [one.parallel.world_size for one in weak] == [one.parallel.world_size for one in strong] == [4, 8, 16, 32]
    assert [one.batch.global_batch_size // one.parallel.data for one in weak] == [2] * 4
    assert [one.batch.global_batch_size for one in strong] == [64] * 4


def test_flags_win_over_axes_and_runs(write: Write) -> None:
    file = write(matrix={"method": ["z2", "z3"], "steps": [20, 30]}, runs=[{"name": "x", "method": "q", "steps": 40}])
    planned = hpc_llm.plan(file, steps=50)
    assert [(p.plan.method, p.plan.workload.steps) for p in planned] == [("z2", 50), ("z3", 50), ("q", 50)]
    assert [p.study.changed for p in planned if p.study] == [("steps",)] * 3
    chosen = hpc_llm.plan(file, method=["z3"])
    assert [p.plan.method for p in chosen] == ["z3"] * 3
    assert [p.study.changed for p in chosen if p.study] == [(), (), ("method",)]
    set_ = hpc_llm.plan(write(method="z3", matrix={"set.optimizer.lr": [1e-3, 2e-3]}), set=["optimizer.lr=5e-3"])
    assert [p.plan.optimizer.lr for p in set_] == [5e-3]


def test_explain_says_which_run_it_shows_and_how_to_see_another(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(matrix={"method": ["z2", "z3"]})
    assert run(["render", file, "--explain"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"# the plan of z2, the first of 2 runs on {BASE['cluster']}; an arrow" in shown
    assert (
        "# the other runs: what they have otherwise; --run NAME shows the whole plan of one # z3 instead of z2" in shown
    )
    assert run(["render", file, "--explain", "--run", "z3"]) == 0
    assert capsys.readouterr().out.startswith("# the plan; an arrow")


def test_a_mapping_is_read_like_the_file(write: Write) -> None:
    content: dict[str, Any] = {"matrix": {"method": ("z2", "z3"), "set.optimizer.lr": (1e-3, 2e-3)}, "max_parallel": 3}
    assert names(hpc_llm.plan({**BASE, **content})) == names(hpc_llm.plan(write(**json.loads(json.dumps(content)))))
    [batch] = hpc_llm.prepare({**BASE, **content})
    assert batch.parallel == 3


def test_smoke_values_lie_over_the_run_and_flags_over_them(write: Write) -> None:
    file = write(
        smoke={"steps": 9, "model": "tiny"},
        model="llama2-7b",
        reference={"tokens_per_second": REFERENCE},
        runs=[
            {"name": "a", "method": "z3", "expect": "OOM_DEVICE"},
            {"name": "b", "method": "z2", "smoke": {"steps": 12, "expect": "TIMEOUT"}},
        ],
    )
    full, small = hpc_llm.plan(file), hpc_llm.plan(file, smoke=True, warmup_steps=2)
    assert [p.plan.workload.steps for p in full] == [20, 20]
    assert [(p.plan.workload.steps, p.plan.model.name) for p in small] == [(9, "tiny"), (12, "tiny")]
    assert [(p.study.smoke, p.study.expect) for p in small if p.study] == [(True, None), (True, "TIMEOUT")]
    assert [p.study.expect for p in full if p.study] == ["OOM_DEVICE", None]
    assert small[0].origins["steps"] == "study.yaml: smoke" and small[0].origins["warmup_steps"] == "warmup_steps"
    assert all(p.study and p.study.reference["tokens_per_second"].value == 5000 for p in (*full, *small))


def test_null_in_smoke_takes_an_option_back(write: Write) -> None:
    file = write(
        cluster="mi210", method="z3", smoke={"gpus-per-node": None, "sequence_length": 32}, gpus_per_node=1,
        runs=[{"name": "a"}, {"name": "b", "seed": 2, "smoke": {"steps": None, "seed": None}}],
    )  # fmt: skip
    assert [p.plan.parallel.gpus_per_node for p in hpc_llm.plan(file)] == [1, 1]
    small = hpc_llm.plan(file, smoke=True)
    assert [p.plan.parallel.gpus_per_node for p in small] == [2, 2]
    assert small[0].plan.workload.steps == 20 != small[1].plan.workload.steps and small[1].plan.workload.seed != 2
    assert {p.plan.parallel.gpus_per_node for p in hpc_llm.plan(file, smoke=True, gpus_per_node=1)} == {1}


def test_small_runs_are_called_as_the_large_ones(write: Write) -> None:
    file = write(
        matrix={"model": ["llama2-7b", "llama3.2-1b"], "steps": [20, 30]},
        method="z3",
        smoke={"model": "tiny", "steps": 9},
    )
    small = hpc_llm.plan(file, smoke=True)
    assert names(small) == names(hpc_llm.plan(file)) == [
        "llama2-7b,steps=20", "llama2-7b,steps=30", "llama3.2-1b,steps=20", "llama3.2-1b,steps=30",
    ]  # fmt: skip
    assert {(p.plan.model.name, p.plan.workload.steps) for p in small} == {("tiny", 9)}


def test_many_entries_are_found_in_many_combinations(write: Write) -> None:
    excluded = [{"seed": i % 100, "steps": 20 + i // 100} for i in range(1000)]
    file = write(method="z3", matrix={"seed": list(range(100)), "steps": list(range(20, 31))}, exclude=excluded)
    assert len(hpc_llm.plan(file)) == 100


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"matrix": {"methods": ["z3"]}}, "study.yaml: matrix: methods: there is no option 'methods': did you mean 'method'?"),
        ({"method": "z3", "matrix": {"set.optimizer.lt": [1, 2]}}, "every run on cluster taiwania2: study.yaml: matrix: set.optimizer.lt: there is no key 'lt'"),
        ({"matrix": {"set.optimiser.lr": [1]}}, "study.yaml: matrix: set.optimiser.lr: there is no plan field 'optimiser'"),
        ({"matrix": {"method": "z3"}}, "study.yaml: matrix: method needs a list of values"),
        ({"matrix": {"method": []}}, "study.yaml: matrix: method needs a list of values"),
        ({"matrix": ["method"]}, "study.yaml: matrix is a mapping"),
        ({"matrix": {"method": ["z3", "z3"]}}, "study.yaml: matrix: method holds z3 twice"),
        ({"matrix": {"method": ["z3", "z3,q"]}}, "study.yaml: matrix: method: method names several"),
        ({"matrix": {"steps": [1, "2"]}}, "study.yaml: matrix: steps: steps is '2', a whole number"),
        ({"matrix": {"micro-batch-size": [1], "micro_batch_size": [2]}}, "study.yaml: matrix: micro_batch_size comes twice"),
        ({"matrix": {"env_file": ["x"]}}, "study.yaml: matrix: env_file: a file of variables is named by --env-file"),
        ({"matrix": {"set.env.LD_PRELOAD": ["x.so"]}}, "study.yaml: matrix: set.env.LD_PRELOAD: "),
        ({"matrix": {"set": [{"precision": "fp16", "attention": "sdpa"}]}}, "study.yaml: matrix: set: each value sets one"),
        ({"matrix": {"seed": list(range(200)), "steps": list(range(20, 99))}}, "study.yaml: the matrix has more than 10000"),
        ({"matrix": {"method": ["z3"]}, "exclude": [{"seed": 1}]}, "study.yaml: exclude 1: there is no axis of matrix 'seed'"),
        ({"matrix": {"method": ["z3"]}, "exclude": [{"method": "q"}]}, "study.yaml: exclude 1: method q is not in matrix"),
        ({"matrix": {"method": ["z3"]}, "exclude": [{"method": "z3"}]}, "study.yaml: exclude leaves no run"),
        ({"matrix": {"method": ["z3"]}, "include": [{"method": "z3", "seed": 1}, {"method": "z3", "seed": 2}]},
         "study.yaml: include 2: seed is said once more of a combination that has 1."),
        ({"method": "z3", "exclude": {"method": "z3"}}, "study.yaml: exclude is a list of mappings"),
        ({"method": "z3", "runs": []}, "study.yaml: runs is empty"),
        ({"method": "z3", "runs": [{"name": "a", "stesp": 3}]}, "study.yaml: runs 1 (a): there is no option 'stesp'"),
        ({"method": "z3", "runs": [{"name": "a"}, {"name": "a", "seed": 1}]}, "study.yaml: 2 runs are called a."),
        ({"method": "z3", "runs": [{"name": "a\nb"}]}, "study.yaml: runs 1: name is"),
        ({"method": "z3", "runs": [{"seed": 1}, {"seed": 1}]}, "run z3#2 on cluster taiwania2: it asks for the same as z3#1"),
        ({"method": "z3", "runs": [{"method": ["z2", "q"]}]}, "study.yaml: runs 1: method names several"),
        ({"method": "z3", "expect": "OOM"}, "study.yaml: there is no outcome 'OOM' in expect: did you mean"),
        ({"method": "z3", "expect": "UNKNOWN"}, "study.yaml: there is no outcome 'UNKNOWN'"),
        ({"method": "z3", "smoke": 3}, "study.yaml: smoke is a mapping"),
        ({"method": "z3", "smoke": {"stesp": None}}, "study.yaml: smoke: there is no option that null takes back 'stesp'"),
        ({"method": "z3", "smoke": {"sbatch": None}}, "study.yaml: smoke: there is no option that null takes back 'sbatch'"),
        ({"method": "z3", "smoke": {"name": "x", "stesp": 1}}, "study.yaml: smoke: there is no option 'stesp'"),
        ({"method": "z3", "max-parallel": 0}, "study.yaml: max_parallel is 0: a whole number of at least 1"),
        ({"method": "z3", "max_parallel": True}, "study.yaml: max_parallel is True"),
        ({"method": "z3", "matrx": {"seed": [1]}}, "study.yaml: there is no option 'matrx': did you mean 'matrix'?"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_that_says_where(
    write: Write, capsys: pytest.CaptureFixture[str], content: dict[str, Any], said: str
) -> None:
    found = refused(capsys, write(**content))
    assert found.startswith(said), found


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ({"tokens_per_secnd": REFERENCE}, "study.yaml: reference: there is no result 'tokens_per_secnd'"),
        ({"outcome": REFERENCE}, "there is no result 'outcome'"),
        ({"tokens_per_second": 5000}, "study.yaml: reference.tokens_per_second: write it as"),
        ({"tokens_per_second": {**REFERENCE, "unit": "tok/s"}}, "is not given in 'tok/s'. Valid units: tokens/s."),
        ({"tokens_per_second": {**REFERENCE, "value": "5k"}}, "tokens_per_second.value is '5k', a number is needed"),
        (
            {"tokens_per_second": {**REFERENCE, "value": -1}},
            "study.yaml: reference.tokens_per_second.value: no run can have -1 tokens/s. tokens_per_second is above 0",
        ),
        ({"tokens_per_second": {**REFERENCE, "value": 0}}, "no run can have 0 tokens/s"),
        ({"tokens_per_second": {**REFERENCE, "value": float("inf")}}, "the number .inf is not finite"),
        ({"peak_device_bytes": {**REFERENCE, "value": -0.2, "unit": "GiB"}}, "no run can have -0.2 GiB"),
        ({"mfu": {**REFERENCE, "value": 1.4, "unit": "1"}}, "no run can have 1.4 1. mfu is above 0, at most 1"),
        ({"tokens_per_second": {**REFERENCE, "tolerance": 5}}, "tolerance is 5, a share from 0 to 1"),
        ({"tokens_per_second": {**REFERENCE, "source": ""}}, "lacks source"),
        ({"tokens_per_second": {**REFERENCE, "hardware": "a\nb"}}, "hardware is 'a\\nb'"),
        ({"tokens_per_second": {**REFERENCE, "weights": "good"}}, "there is no kind of weights 'good'"),
        ({"tokens_per_second": {**REFERENCE, "page": 3}}, "there is no key 'page'"),
        ({}, "study.yaml: reference: write it as"),
    ],
)
def test_a_reference_says_value_unit_source_and_hardware(
    write: Write, capsys: pytest.CaptureFixture[str], reference: Any, said: str
) -> None:
    assert said in refused(capsys, write(method="z3", reference=reference))


def test_a_unit_is_turned_into_that_of_the_result() -> None:
    assert units_of("peak_allocated_bytes")["GiB"] == 2**30 and units_of("peak_allocated_bytes")["GB"] == 1e9
    assert units_of("step_time_s_mean")["ms"] == units_of("latency_s_p99")["ms"] == 1e-3
    assert units_of("queries_per_second") == {"queries/s": 1.0}
    assert units_of("tokens_per_second_per_gpu") == {"tokens/s": 1.0}
    assert units_of("mfu")["%"] == 0.01 and units_of("perplexity") == {"1": 1.0}


def test_one_bad_run_stops_all_and_is_named(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        method="z3", matrix={"seed": [1, 2, 3]}, runs=[{"name": "bad", "set.precision": "bf16"}], cluster="local"
    )
    assert (
        run(
            ["submit", write(method="z3", matrix={"seed": [1, 2]}, runs=[{"name": "bad", "steps": 2}], cluster="local")]
        )
        == 2
    )
    assert capsys.readouterr().err.splitlines()[-1].startswith("hpc-llm: run bad on cluster local: warmup_steps")
    assert not Path("logs").exists() and file
    many = write(method="z3", matrix={"seed": list(range(12)), "steps": [2, 20]})
    assert refused(capsys, many).startswith("runs seed=0,steps=2, seed=1,steps=2, ")
    assert " and 4 more on cluster taiwania2: warmup_steps" in refused(capsys, many)


def test_nothing_is_prepared_for_a_study_that_cannot_run(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.txt").write_text("some text\n" * 50)
    runs = [{"name": "needs", "data": "rows.txt"}, {"name": "bad", "steps": 2}]
    assert run(["submit", write(cluster="local", method="z3", runs=runs), "--wait"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("hpc-llm: run bad on cluster local: warmup_steps")
    assert not Path("logs").exists()


def test_what_smoke_takes_back_is_not_said_to_differ(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        cluster="mi210", method="z3", matrix={"nodes": [1, 2], "gradient_accumulation_steps": [1, 2]}, smoke={"nodes": None, "steps": 9},
    )  # fmt: skip
    full, small = hpc_llm.plan(file), hpc_llm.plan(file, smoke=True)
    names = [one.study.name for one in full if one.study]
    assert names == [one.study.name for one in small if one.study] and "nodes=2" in names[2]
    assert [sorted(one.study.differs) for one in full if one.study] == [["gradient_accumulation_steps", "nodes"]] * 4
    assert [list(one.study.differs) for one in small if one.study] == [["gradient_accumulation_steps"]] * 4
    assert {one.plan.parallel.nodes for one in small} == {1}


def test_smoke_needs_smoke_values(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(runs=[{"name": "a", "method": "z3", "smoke": {"steps": 9}}, {"name": "b", "method": "z2"}])
    assert "--smoke: b has no smoke values" in refused(capsys, file, "--smoke")
    assert "--smoke needs an experiment file" in refused(capsys, "--smoke", "--cluster=local", "--method=z3")


def test_equal_scripts_share_an_array_and_others_go_beside(write: Write) -> None:
    found = hpc_llm.prepare(
        write(method="z3", matrix={"nodes": [1, 2], "seed": [1, 2, 3]}, runs=[{"name": "long", "time": "01:00:00"}]),
        max_parallel=2,
        run_id="x",
    )
    assert [(len(batch.planned), batch.array is not None) for batch in found] == [(3, True), (3, True), (1, False)]
    assert ["#SBATCH --array=0-2%2" in batch.scripts[0].text for batch in found] == [True, True, False]
    assert len({batch.array.folder for batch in found if batch.array}) == 2
    assert len({run_id for batch in found for run_id in batch.run_ids}) == 7
    assert all("runs of the study study" in batch.scripts[0].text for batch in found[:2])


def test_models_of_one_study_share_an_array(write: Write) -> None:
    [batch] = hpc_llm.prepare(write(matrix={"model": ["tiny", "llama2-7b"], "method": ["z2", "q"]}))
    assert batch.array is not None and batch.array.tasks[3].endswith("(llama2-7b,q)")


def test_an_array_has_no_more_tasks_than_slurm_takes(write: Write) -> None:
    before = time.process_time()
    found = hpc_llm.prepare(write(method="z3", matrix={"seed": list(range(1001))}))
    assert [len(batch.planned) for batch in found] == [1000, 1]
    assert is_within(time.process_time() - before, 5)  # all of them are planned and checked before the first is queued


def test_a_scheduler_without_a_way_to_hold_runs_back_refuses(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--max-parallel is 0" in refused(capsys, write(method="z3"), "--max-parallel=0")


def test_runs_of_one_cluster_or_name_are_taken_alone(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        runs=[
            {"name": "a-1", "method": "z2", "cluster": "mi210", "account": "x"},
            {"name": "a-2", "method": "z3"},
            {"name": "b-2", "method": "z3", "steps": 30},
        ]
    )
    assert names(hpc_llm.plan(file, only="cluster=mi210")) == ["a-1"]
    assert names(hpc_llm.plan(file, only=["name=*-2", "method=z2,z3"])) == ["a-2", "b-2"]
    assert (
        refused(capsys, file, "--only=cluster=delta")
        == "--only: there is no cluster 'delta'. Valid: mi210, taiwania2.\n"
    )
    assert "write KEY=VALUE, as in --only cluster=delta" in refused(capsys, file, "--only=delta")
    assert "--only takes runs of a study" in refused(capsys, "--cluster=local", "--method=z3", "--only=cluster=local")


def test_a_run_of_a_matrix_is_named_as_it_is_listed_however_many_commas_it_has(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("cluster: local\nmodel: tiny\nmatrix: {method: [z2, z3], seed: [1, 2]}\n")
    listed = names(hpc_llm.plan(file))
    assert len(listed) == 4 and all("," in name for name in listed)
    for name in listed:
        assert names(hpc_llm.plan(file, only=f"name={name}")) == [name]
    assert names(hpc_llm.plan(file, only=f"name={listed[3]},{listed[0]}")) == [listed[0], listed[3]]
    assert names(hpc_llm.plan(file, only="name=*seed=2")) == [listed[1], listed[3]]


def test_render_lists_the_runs_and_shows_any_one(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        matrix={"method": ["z2", "z3"], "seed": [1, 2]}, runs=[{"name": "big", "method": "q", "expect": "OOM_DEVICE"}]
    )
    assert run(["render", file]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert (
        len([row for row in rows if "taiwania2" in row]) == 5 and "OOM_DEVICE" in rows[6] and "#!/bin/bash" not in rows
    )
    assert "5 runs in 1 job array" in rows[-1]
    assert run(["render", file, "--run", "big"]) == 0
    assert capsys.readouterr().out == hpc_llm.render(file)[0].text
    assert "there is no run 'bgi': did you mean 'big'?" in refused(capsys, file, "--run", "bgi")
    assert "say with --run NAME" in refused(capsys, file, "-o", "x.sh")
    assert "the request is no study" in refused(capsys, "--cluster=local", "--method=z3", "--run", "z3")
    assert run(["render", file, "--run", "big", "--diff", "mi210"]) == 0
    assert "method: q" not in capsys.readouterr().out


def test_json_keeps_its_keys_and_names_the_runs(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(matrix={"method": ["z2", "z3"]}, reference={"mfu": {**REFERENCE, "unit": "%", "value": 40}})
    assert run(["render", file, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"script", "plan", "origins", "plans", "runs"} <= set(document) and len(document["plans"]) == 2
    assert [one["name"] for one in document["runs"]] == ["z2", "z3"]
    assert document["runs"][0]["reference"]["mfu"]["value"] == 40
    assert run(["render", file, "--json", "--run", "z3"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert one["plan"]["method"] == "z3" and [each["name"] for each in one["runs"]] == ["z3"]
    assert run(["submit", file, "--dry-run", "--force"]) == 0
    assert "2 runs in 1 job array" in capsys.readouterr().out


def test_files_that_say_nothing_new_are_no_studies(write: Write) -> None:
    assert all(one.study is None for one in hpc_llm.plan(write(method=["z2", "z3"])))


def test_a_reach_of_a_strangers_file_is_refused_in_every_part(write: Write) -> None:
    for part in (
        {"runs": [{"name": "a", "set.env.LD_PRELOAD": "x"}]},
        {"runs": [{"name": "a", "sbatch": {"wrap": "x"}}]},
        {"smoke": {"env_file": "x"}},
        {"include": [{"set": {"job": {"env": {"PYTHONPATH": "x"}}}}]},
        {"matrix": {"set": [{"env.BASH_ENV": "x"}]}},
        {
            "runs": [
                {"name": "a", "reference": {"mfu": {**REFERENCE, "source": "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"}}}
            ]
        },
    ):
        with pytest.raises(RequestError):
            hpc_llm.plan(write(method="z3", **part))


@pytest.mark.parametrize(
    ("study", "missing"),
    [
        ({"task": "finetune", "data": ["rows.jsonl"]}, "the data are not prepared yet"),
        ({"data": ["nowhere.jsonl"]}, "nowhere.jsonl: there is no such file."),
        ({"cluster": "delta"}, "cluster delta needs an account."),
    ],
)
def test_the_list_of_runs_needs_neither_data_nor_account(
    own_folder: Path, study: dict[str, Any], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing is said beside it; what is wrong with the file itself has no list."""
    Path("rows.jsonl").write_text('{"prompt": "1?", "completion": "yes"}\n' * 9)
    runs = [{"name": "first", "method": "z3"}, {"name": "second", "method": "ddp", "expect": "OOM_DEVICE"}]
    file = "study.yaml"
    Path(file).write_text(yaml.safe_dump({"cluster": "local", "model": "tiny", "steps": 20, **study, "runs": runs}))
    assert run(["render", file]) == 2
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()[2:]] == ["first", "second"]
    assert "OOM_DEVICE" in told.out.splitlines()[-1] and missing in told.err
    assert run(["render", file, "--run", "first"]) == 2 and capsys.readouterr().out == ""


@pytest.mark.parametrize("file", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda file: file.stem)
def test_each_study_of_the_project_is_listed(file: Path, own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", str(file)]) in (0, 2)
    assert capsys.readouterr().out.startswith("run ")
