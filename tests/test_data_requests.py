"""Data in a request: found where they were prepared, counted for epochs, refused with the command that helps."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_runs import tensors
from pace import is_within
from rendering import planned

import hpc_llm
from hpc_llm.api.request import read_request
from hpc_llm.corpus.sources import source_files
from hpc_llm.errors import PlanError, RequestError
from hpc_llm.planning.parts import Training
from hpc_llm.records.files import read_json_lines
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting.collect import collect
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.tasks.prepare import request_of

RUN: dict[str, Any] = {"cluster": "local", "method": "ddp", "model": "tiny", "sequence_length": 32}


@pytest.fixture
def rows(own_folder: Path) -> Path:
    """60 questions with short answers."""
    path = own_folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"question": f"{n}?", "answer": str(n)}) + "\n" for n in range(60)))
    return path


def prepared(*data: Any, **how: Any) -> Path:
    """Prepare as a job of the same request would."""
    [one] = hpc_llm.plan(cluster="local", task="prepare", model=RUN["model"], data=list(data), **how)
    assert one.plan.training.caches is not None
    return prepare(request_of(one.plan), Path(one.plan.training.caches), lambda text: None).folder


def workload(**asked: Any) -> Training:
    [one] = hpc_llm.plan(**{**RUN, **asked})
    return one.plan.training


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hpc_llm", *words], capture_output=True, text=True, timeout=580, check=False
    )


@pytest.mark.parametrize("task", ["prepare", "finetune"])
@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [("a.txt", b"x\n", b""), ("a.jsonl", b'{"text": "x"}\n', b'{"text": "y"}\n'), ("a.csv", b"text\nx\n", b""), ("a.parquet", b"PAR1", b"PAR1")],
)  # fmt: skip
def test_a_hole_is_found_before_anything_is_read(
    own_folder: Path, name: str, begin: bytes, end: bytes, task: str
) -> None:
    """Of a tebibyte of zeros that lies nowhere: whoever reads them takes an hour."""
    with (own_folder / name).open("wb") as file:
        file.write(begin)
        file.truncate(1 << 40)
        file.seek(0, 2)
        file.write(end)
    started = time.process_time()
    with pytest.raises(RequestError, match=r"from byte \d+ on \d+ bytes were never written"):
        hpc_llm.plan(**{**RUN, "task": task, "sequence_length": 32 if task == "finetune" else None}, data=[name])
    assert is_within(time.process_time() - started, 2)


@pytest.mark.parametrize("more", [{}, {"validation_fraction": 0.1}, {"data": "validation=held.jsonl"}])
def test_samples_that_nothing_holds_out_are_told_before_they_are_prepared(rows: Path, more: dict[str, Any]) -> None:
    Path("held.jsonl").write_text('{"question": "1?", "answer": "one"}\n')
    data = ["rows.jsonl", *([more["data"]] if "data" in more else [])]
    settings = [f"{name}={value}" for name, value in {"validation_samples": 5, **more}.items() if name != "data"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        hpc_llm.plan(cluster="local", task="prepare", model="tiny", data=data, set=settings)
    said = [
        str(one.message)
        for one in told
        if "validation_samples=5 says how many are held out at most" in str(one.message)
    ]
    assert len(said) == (not more)


def test_what_was_written_as_zeros_or_left_out_of_a_table_is_no_hole(own_folder: Path) -> None:
    for name, content in (
        ("a.txt", b"x\n" * 9000),
        ("b.jsonl", b'{"text": "x"}\n' * 900),
        ("c.parquet", b"PAR1" + bytes(1 << 16)),
    ):
        (own_folder / name).write_bytes(content)
    (own_folder / "d.pdf").write_bytes(b"%PDF-1.4\n")
    os.truncate(own_folder / "d.pdf", 1 << 20)
    assert len(source_files(["a.txt", "b.jsonl", "c.parquet", "d.pdf"])) == 4


@pytest.mark.parametrize("said", [{"data": ["inner.txt"]}, {"runs": [{"name": "a", "data": ["validation=inner.txt"]}]}])
def test_a_path_beside_an_experiment_file_is_told_from_one_in_the_working_directory(
    own_folder: Path, said: dict[str, Any]
) -> None:
    """One rule for all: a path counts from the working directory, as on the command line."""
    (own_folder / "sub").mkdir()
    (own_folder / "sub" / "inner.txt").write_text("words\n")
    (own_folder / "sub" / "e.yaml").write_text(json.dumps({**RUN, **said}))
    with pytest.raises(RequestError) as refused:
        hpc_llm.plan("sub/e.yaml")
    assert f"{own_folder}/inner.txt: there is no such file. A path in an experiment file counts from the" in str(
        refused.value
    )
    assert f"{own_folder}/sub/inner.txt is there" in str(refused.value)
    assert str(refused.value).startswith("data in sub/e.yaml: ") and "--data" not in str(refused.value)
    with pytest.raises(RequestError) as refused:
        hpc_llm.plan("sub/e.yaml", data=["inner.txt"] if "data" in said else ["train=inner.txt"])
    assert "counts from" not in str(refused.value)


def test_data_that_are_not_prepared_are_refused_with_the_command_that_prepares_them(rows: Path) -> None:
    """And that command does."""
    asked = [
        "render", "--cluster=local", "--method=ddp", "--model=tiny", "--data", str(rows), "--set", "columns.prompt=Q: {question}",
        "--set", "columns.completion=answer", "--set=train_samples=40", "--logs=elsewhere/my runs", "--epochs", "2",
    ]  # fmt: skip
    refused = cli(*asked)
    assert (
        refused.returncode == 2
        and "not prepared yet for tiny. This does it: hpc-llm submit --task prepare" in refused.stderr
    )
    assert not Path("elsewhere").exists()
    command = shlex.split(refused.stderr.partition("This does it: ")[2])
    made = cli(*command[1:])
    assert made.returncode == 0, made.stdout + made.stderr
    shown = cli(*asked, "--json")
    assert shown.returncode == 0, shown.stderr
    [corpus] = Path("elsewhere/caches").glob("[!.]*")
    facts = json.loads((corpus / "corpus.json").read_text())
    assert facts["splits"]["train"]["samples"] == 40 and facts["splits"]["train"]["longest_source"] == len("Q: 39?")


def test_an_evaluation_of_nothing_is_refused_before_the_data_are_prepared(rows: Path) -> None:
    asked = {"data": [str(rows)], "micro_batch_size": 4, "set": {"eval_every": 5}}
    with pytest.raises(
        RequestError, match="--set eval_every asks for an evaluation, and nothing of the data is held out"
    ):
        workload(**asked)
    assert not list(Path("caches").glob("*"))
    for set_of in ({"eval_every": 5, "validation_fraction": 0.1}, {"eval_every": None}, {}):
        with pytest.raises(RequestError, match="not prepared yet for tiny"):
            workload(**asked | {"set": set_of})
    rows.with_name("text.txt").write_text("held out\n")
    with pytest.raises(RequestError, match="not prepared yet"):
        workload(**asked | {"data": [str(rows), f"validation={rows.with_name('text.txt')}"]})


def test_epochs_become_steps_and_steps_epochs(rows: Path) -> None:
    prepared(rows)
    asked: dict[str, Any] = {"data": [str(rows)], "micro_batch_size": 4}
    assert workload(**asked, epochs=2).steps == 30  # 60 rows, 4 a step
    whole = workload(**asked, epochs=1.5)
    assert whole.steps == 23 and whole.epochs == pytest.approx(23 * 4 / 60)  # and not 1.5: each step is a whole batch
    assert workload(**asked, steps=20).epochs == pytest.approx(20 * 4 / 60)
    packed = workload(**asked, epochs=8, set={"packing": "documents"})
    assert packed.packing == "documents" and packed.steps < 8 * 15
    assert workload(steps=20).epochs is None


def test_the_packing_suits_what_was_prepared(rows: Path) -> None:
    text = rows.with_name("text.txt")
    text.write_text("some words\n" * 100)
    assert workload(data=[str(prepared(rows))]).packing == "none"
    found = workload(data=[str(prepared(text))])
    assert (found.packing, found.too_long) == ("stream", "refuse")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"epochs": 2, "steps": 20}, "both steps and epochs are given"),
        ({"epochs": 0}, "epochs is 0, it must be above 0"),
        ({"epochs": float("nan")}, "it must be above 0"),
        ({"epochs": "2"}, "a number is needed"),
        ({"sequence_length": 4}, r"rows\.jsonl line \d+, has \d tokens, and sequence_length is 4.*too_long=truncate"),
        ({"set": {"packing": "packed"}}, "valid are none, documents, stream"),
        ({"set": {"validation_fraction": 1.5}}, "from 0 to below 1"),
        ({"set": {"train_samples": 0}}, "train_samples is 0, it must be at least 1"),
        ({"set": {"columns.txt": "x"}}, "no column 'txt'"),
        ({"set": {"corpus": "x"}}, "corpus cannot be set: use --data"),
        ({"sequence_length": 10000}, "takes 2048 tokens at most"),
    ],
)
def test_what_does_not_fit_the_data_is_one_sentence(rows: Path, asked: dict[str, Any], said: str) -> None:
    prepared(rows)
    with pytest.raises(RequestError, match=said):
        workload(data=[str(rows)], **asked)


def test_samples_for_validation_are_held_to_the_same_length(rows: Path) -> None:
    long = rows.with_name("long.jsonl")
    long.write_text(json.dumps({"question": "why?" * 20, "answer": "x"}) + "\n")
    sources = [str(rows), f"validation={long}"]
    prepared(*sources)
    with pytest.raises(
        PlanError, match=r"longest sample of the validation split, .*long\.jsonl line 1, has \d+ tokens"
    ):
        workload(data=sources)
    with pytest.raises(PlanError, match=r"all samples of the validation split .*left out"):
        workload(data=sources, set={"too_long": "drop"})
    assert workload(data=sources, sequence_length=128).too_long == "refuse"


def test_what_is_trained_on_and_held_out_is_told(rows: Path, recwarn: pytest.WarningsRecorder) -> None:
    """By its path, and by its content under another name."""
    Path("same.jsonl").write_bytes(rows.read_bytes())
    Path("other.jsonl").write_text('{"question": "a?", "answer": "b"}\n')
    for held_out, said in (
        ("rows.jsonl", "it is trained on"),
        ("same.jsonl", "which holds the same,"),
        ("other.jsonl", None),
    ):
        recwarn.clear()
        data = ["rows.jsonl", f"validation={held_out}"]
        prepared(*data)
        assert workload(data=data).corpus is not None
        told = [str(one.message) for one in recwarn if "not that of held-out data" in str(one.message)]
        assert [said is not None and said in one for one in told] == [True] * (said is not None)


def test_what_is_wrong_with_the_data_of_a_file_is_said_of_the_file(own_folder: Path) -> None:
    """Whatever it is: nobody gave the option."""
    (own_folder / "empty.txt").write_text("")
    (own_folder / "none").mkdir()
    (own_folder / "a.xlsx").write_text("x")
    run_within(own_folder / "runs")
    for place, said in (
        ("empty.txt", "it is empty"),
        ("none", "nothing to train on"),
        ("a.xlsx", "are not read"),
        ("runs", "folders of runs"),
    ):
        (own_folder / "e.yaml").write_text(json.dumps({**RUN, "data": [place]}))
        with pytest.raises(RequestError, match=rf"^data in e\.yaml: {own_folder}/{place}: .*{said}"):
            hpc_llm.plan("e.yaml")
        with pytest.raises(RequestError, match=rf"^--data {own_folder}/{place}: .*{said}"):
            hpc_llm.plan("e.yaml", data=[place])


def run_within(folder: Path) -> Path:
    """The folder of a run with what such a folder may hold, two levels down."""
    run = folder / "old" / "logs" / "run-1"
    (run / "model").mkdir(parents=True)
    for name in ("experiment.json", "job.json", "steps.jsonl", "log.txt", "model/README.md", "answers.jsonl"):
        (run / name).write_text('{"question": "of a run", "answer": "of a run"}\n')
    return run


def test_runs_that_lie_deeper_in_a_folder_are_no_data(rows: Path, recwarn: pytest.WarningsRecorder) -> None:
    (rows.parent / "set").mkdir()
    rows.rename(rows.parent / "set" / "rows.jsonl")
    before = [Path(one.path).name for one in source_files(["set"])]
    run = run_within(rows.parent / "set")
    assert [Path(one.path).name for one in source_files(["set"])] == before == ["rows.jsonl"]
    prepared("set")
    assert workload(data=["set"]).corpus is not None
    told = [str(one.message) for one in recwarn if "nothing in it is read as data" in str(one.message)]
    assert told and all(str(run) in one for one in told)


def test_a_folder_of_nothing_but_runs_is_refused(own_folder: Path) -> None:
    run_within(own_folder / "set")
    with pytest.raises(RequestError, match="nothing to train on but folders of runs, and what they hold is no data"):
        workload(data=["set"])


def test_too_few_epochs_are_told_how_many_epochs_are_enough(rows: Path) -> None:
    """60 rows, 4 a step: what is advised can be planned as it stands."""
    prepared("rows.jsonl")
    asked = {"data": ["rows.jsonl"], "micro_batch_size": 4}
    for few, warmup in ((0.1, None), (0.3, 5), (0.07, 7)):
        own = {"warmup_steps": warmup} if warmup is not None else {}
        with pytest.raises(RequestError, match=r"Ask for more: --epochs [0-9.]+\.$") as caught:
            workload(**asked, **own, epochs=few)
        enough = float(str(caught.value).rpartition(" ")[2].removesuffix("."))
        assert workload(**asked, **own, epochs=enough).steps - 3 - (warmup or 0) in (0, 1)
    for said, way in (({"steps": 2}, "--steps 3"), ({"set": {"steps": 2}}, "--set steps=3")):
        with pytest.raises(RequestError, match=f"Ask for more: {way}"):
            workload(**asked, **said)
    [made] = hpc_llm.plan(**{**RUN, **asked}, epochs=0.3)
    [told] = (one for one in made.notices if "warm-up" in one)
    assert "--epochs 0.534 or more leaves 5 out" in told and workload(**asked, epochs=0.534).warmup_steps == 5
    with pytest.raises(RequestError, match="warmup_steps is -1, it must be at least 0"):
        workload(warmup_steps=-1)


def test_synthetic_tokens_have_no_epochs_and_no_packing(own_folder: Path) -> None:
    with pytest.raises(RequestError, match=r"synthetic tokens have no end.*--data SOURCE"):
        workload(epochs=1)
    for name, value in (("packing", "documents"), ("too_long", "drop"), ("columns.text", "x"), ("train_samples", 3)):
        with pytest.raises(RequestError, match=rf"--set {name}: synthetic tokens do not heed it.*--data SOURCE"):
            workload(set={name: value})


def test_prepared_data_of_another_model_are_refused(rows: Path) -> None:
    corpus = prepared(rows)
    model = rows.parent / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 100, "hidden_size": 64}))
    with pytest.raises(PlanError, match=r"hold token 256, and .*model has 100 tokens.*same --model"):
        workload(data=[str(corpus)], model=str(model), set={"weights": "random"})
    with pytest.raises(RequestError, match="prepared data stand alone"):
        workload(data=[str(corpus), str(rows)])
    (corpus / "train.tokens").write_bytes(b"")
    with pytest.raises(RequestError, match=r"not whole .*train\.tokens has 0 bytes.*prepare them anew"):
        workload(data=[str(rows)])


def test_flash_attention_keeps_documents_apart_one_sequence_at_a_time_only(rows: Path) -> None:
    from rendering import site

    from hpc_llm.corpus.facts import read_facts
    from hpc_llm.planning.experiment import Experiment
    from hpc_llm.planning.method import load_method
    from hpc_llm.planning.plan import plan
    from hpc_llm.site.cluster import load_cluster

    corpus, cluster = read_facts(prepared(rows)), load_cluster("delta")

    def with_batch(size: int) -> Any:
        asked = Experiment(
            cluster="delta", method="z3+f", account="bbka-delta-gpu", model="tiny", data=(str(corpus.folder),), micro_batch_size=size,
            sequence_length=64, set=("packing=documents",),
        )  # fmt: skip
        return plan(asked, cluster, load_method("z3+f"), site(cluster), {}, corpus)

    assert with_batch(1).plan.training.packing == "documents"
    with pytest.raises(PlanError, match=r"one sequence only.*--micro-batch-size 1"):
        with_batch(2)


def test_a_preparation_is_one_process_without_a_gpu(rows: Path) -> None:
    [one] = hpc_llm.plan(cluster="local", task="prepare", model="tiny", data=[str(rows)])
    assert (one.plan.parallel.world_size, one.plan.parallel.gpus_per_node, one.plan.workload.steps) == (1, 0, 0)
    asked: dict[str, Any] = {"cluster": "taiwania2", "account": "ACD110018", "task": "prepare", "data": [str(rows)]}
    with pytest.raises(PlanError, match=r"every job on partition gp2d.*--cluster local, or with --gpus-per-node 1"):
        hpc_llm.plan(**asked)
    [one] = hpc_llm.plan(**asked, gpus_per_node=1)
    assert (one.plan.parallel.world_size, one.plan.parallel.gpus_per_node) == (1, 1)
    with pytest.raises(PlanError, match="2 nodes: task prepare is one process"):
        hpc_llm.plan(**asked, nodes=2)
    with pytest.raises(RequestError, match="nothing is to be prepared"):
        hpc_llm.plan(cluster="local", task="prepare")
    with pytest.raises(RequestError, match="task prepare does not heed optimizer"):
        hpc_llm.plan(cluster="local", task="prepare", data=[str(rows)], set={"optimizer": {"lr": 1}})


def test_data_are_prepared_for_a_model_whose_tokens_can_be_seen(rows: Path) -> None:
    model = rows.parent / "model"
    for name, said in (
        ("tinny", "did you mean 'tiny'"),
        ("/no/where", "there is no folder /no/where here"),
        (str(model), "no config"),
    ):
        model.mkdir(exist_ok=True)
        with pytest.raises(RequestError, match=said):
            hpc_llm.plan(cluster="local", task="prepare", model=name, data=[str(rows)])
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 300}))
    assert hpc_llm.plan(cluster="local", task="prepare", model=str(model), data=[str(rows)])
    (model / "model.safetensors").write_bytes(tensors({"model.norm.weight": 16}, "BF16"))
    with pytest.raises(
        PlanError, match=r"holds no tokenizer, so nothing turns text into the tokens that its model knows"
    ):
        hpc_llm.plan(cluster="local", task="prepare", model=str(model), data=[str(rows)])


@pytest.mark.parametrize("task", ["prepare", "finetune"])
def test_held_out_data_are_named_once(rows: Path, task: str) -> None:
    """Before anything is queued, and not with a command that would fail."""
    asked: dict[str, Any] = {"data": [str(rows), f"validation={rows}"], "set": ["validation_fraction=0.1"]}
    asked |= {"method": "ddp"} if task == "finetune" else {}
    with pytest.raises(RequestError, match="a source is for validation already: leave one of the two out"):
        hpc_llm.plan(cluster="local", task=task, model="tiny", **asked)


def test_an_adapter_is_no_model(own_folder: Path, rows: Path) -> None:
    folder = own_folder / "model"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(RequestError, match=r"holds an adapter of PEFT and not the model .* --resume RUN"):
        hpc_llm.plan(cluster="local", method="lora", model=str(folder))
    with pytest.raises(
        RequestError, match=r"holds an adapter of PEFT and not the model"
    ):  # and not: data are not prepared
        hpc_llm.plan(cluster="local", method="lora", model=str(folder), data=[str(rows)])


def test_what_reads_the_files_is_looked_for_before_the_job_begins(own_folder: Path) -> None:
    from hpc_llm.planning.tasks import required_packages

    for name, package in (("a.parquet", ("pyarrow",)), ("a.pdf", ("pypdf",)), ("a.jsonl", ()), ("a.txt", ())):
        Path(name).write_text("x")
        [one] = hpc_llm.plan(cluster="local", task="prepare", model="tiny", data=[name])
        assert required_packages([one.plan]) == package
    [one] = hpc_llm.plan(cluster="local", task="prepare", model="tiny", data=["gsm8k"])
    assert required_packages([one.plan]) == ("datasets",)
    assert planned("local", "z3").plan.training.corpus is None


@pytest.mark.train
@pytest.mark.usefixtures("copied_ranks")
def test_it_is_prepared_trained_on_and_told(rows: Path) -> None:
    text = rows.with_name("text.txt")
    text.write_text("".join(f"the {n} brown foxes jump\n" for n in range(100)))
    made = cli("submit", "--task=prepare", "--cluster=local", "--model=tiny", "--data=text.txt", "--wait", "--json")
    assert made.returncode == 0, made.stderr
    [run] = json.loads(made.stdout)["runs"]
    assert (run["outcome"], run["result"]["splits"]["train"]["tokens"]) == ("COMPLETED", len(text.read_bytes()) + 1)
    assert Path(run["result"]["corpus"]).parent == Path("caches").absolute()
    asked = ("--cluster=local", "--method=ddp", "--model=tiny", "--set=engine=plain", "--set=optimizer.lr=3e-3")
    done = cli(
        "submit",
        *asked,
        "--data=text.txt",
        "--epochs=4",
        "--micro-batch-size=8",
        "--sequence-length=32",
        "--wait",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    [run] = json.loads(done.stdout)["runs"]
    assert run["result"]["loss_last"] < run["result"]["loss_first"] - 1
    table = cli("parse", "logs", "--format", "json")
    by_task = {row["task"]: row for row in json.loads(table.stdout)}
    assert by_task["prepare"]["outcome"] == "COMPLETED" and by_task["prepare"]["kind"] is None
    nothing = ("tokens_per_second", "method", "micro_batch_size", "sequence_length", "precision")
    assert all(by_task["prepare"][name] is None for name in nothing) and by_task["pretrain"]["kind"] == "train"
    assert [run.row.task for run in collect(["logs"])] == ["pretrain"]
    assert cli("diagnose", "logs").returncode == 0


@pytest.mark.usefixtures("copied_ranks")
def test_a_step_without_a_token_to_learn_has_no_loss_and_spoils_no_run(own_folder: Path) -> None:
    """A question may be longer than several sequences; that nothing of them is learned is no divergence."""
    rows = [{"question": "why? " * 60, "answer": "so"}] + [
        {"question": f"{n}?", "answer": "yes " * 9} for n in range(20)
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = (
        "--cluster=local",
        "--method=ddp",
        "--model=tiny",
        "--data=rows.jsonl",
        "--set=packing=stream",
        "--steps=30",
    )
    done = cli("submit", *asked, "--micro-batch-size=1", "--sequence-length=32", "--wait", "--json")
    assert done.returncode == 0, done.stderr
    [run] = json.loads(done.stdout)["runs"]
    steps = list(read_json_lines(RunPaths(Path(run["run_dir"])).steps))
    empty = [step for step in steps if step["trained_tokens"] == 0]
    assert empty and all(step["loss"] is None for step in empty)
    assert all(step["loss"] is not None for step in steps if step["trained_tokens"])
    assert run["outcome"] == "COMPLETED" and run["result"]["loss_last"] is not None


@pytest.mark.usefixtures("copied_ranks")
def test_a_preparation_that_fails_says_why(own_folder: Path) -> None:
    Path("a.jsonl").write_text('{"text": "x"}\n{"tex": "y"}\n')
    made = cli("submit", "--task=prepare", "--cluster=local", "--model=tiny", "--data=a.jsonl", "--wait", "--json")
    assert made.returncode == 3
    [run] = json.loads(made.stdout)["runs"]
    assert run["outcome"] == "FAILED" and "line 2 has no field 'text'" in run["result"]["outcome_reason"]


@pytest.mark.parametrize("task", ["prepare", "finetune"])
@pytest.mark.parametrize(
    ("name", "content", "columns", "said"),
    [
        ("a.jsonl", '{"question": "x", "answr": "y"}\n', {"prompt": "question", "completion": "answer"}, "there is no field 'answer' in .*a.jsonl line 1: did you mean 'answr'"),
        ("a.jsonl", '\n{"question": "x"}\n', {"text": "Q: {qestion}"}, "no field 'qestion' in .*a.jsonl line 2: did you mean 'question'"),
        ("a.csv", "q,a\n1,2\n", {"text": "x"}, r"there is no field 'x' in .*a.csv line 2\. Valid: a, q"),
        ("a.csv", "q,a\n1,2\n", {}, "has the fields q, a, and none of them says"),
    ],
)  # fmt: skip
def test_rows_that_lack_what_is_asked_are_refused_before_a_job_waits_for_them(
    own_folder: Path, task: str, name: str, content: str, columns: dict[str, str], said: str
) -> None:
    (own_folder / name).write_text(content)
    settings = [f"columns.{what}={field}" for what, field in columns.items()]
    with pytest.raises(RequestError, match=said):
        hpc_llm.plan(**{**RUN, "task": task}, data=[name], set=settings)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("validaton=a.jsonl", "no split or known data set 'validaton' in front of =: did you mean 'validation'"),
        ("gsm=a.jsonl", "did you mean 'gsm8k'"),
        ("train=gsm8=a.jsonl", "no split or known data set 'gsm8' in front of =: did you mean 'gsm8k'"),
    ],
)
def test_a_wrong_word_before_a_path_is_told(own_folder: Path, data: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        hpc_llm.plan(**RUN, data=[data])


def test_that_nothing_is_held_out_is_said(rows: Path) -> None:
    folder = prepared(rows)
    said = [
        hpc_llm.plan(**RUN, task="finetune", data=[folder], set=more)[0].notices for more in ([], ["eval_every=null"])
    ]
    told = ["nothing of the data is held out" in " ".join(notices) for notices in said]
    assert told == [True, False]


@pytest.mark.parametrize("packing", ["none", "documents"])
@pytest.mark.parametrize(
    ("how", "number", "why"),
    [
        ("truncate", 20, "with nothing to learn within sequence_length 32"),
        ("drop", 40, "longer than sequence_length 32, or with nothing to learn in it"),
    ],
)
def test_samples_that_no_row_holds_are_counted_and_told(
    own_folder: Path, packing: str, how: str, number: int, why: str
) -> None:
    kinds = (("short?", "yes"), ("short?", "y" * 40), ("q" * 40, "yes"))
    for name, times in (("a.jsonl", 20), ("b.jsonl", 10)):
        lines = [json.dumps({"question": q, "answer": a}) + "\n" for q, a in kinds] * times
        (own_folder / name).write_text("".join(lines))
    folder = prepared("a.jsonl", "validation=b.jsonl")
    [one] = hpc_llm.plan(**RUN, data=[folder], set=[f"too_long={how}", f"packing={packing}"])
    for split, all_of_them in (("train", 60), ("validation", 30)):
        left_out = number * all_of_them // 60
        assert f"{left_out} of {all_of_them} samples of the {split} split left out: {why}" in one.notices
    [whole] = hpc_llm.plan(**{**RUN, "sequence_length": 64}, data=[folder])
    assert "left out:" not in " ".join(whole.notices)
    with pytest.raises(PlanError, match=r"all samples of the train split in .* are left out: .* Ask for more with"):
        hpc_llm.plan(**{**RUN, "sequence_length": 4}, data=[folder], set=[f"too_long={how}", f"packing={packing}"])


@pytest.mark.parametrize(
    ("in_file", "flags", "left"),
    [
        (["a"], ["b"], ["b"]),
        (["a", "validation=v"], ["b"], ["b"]),  # it may bring its own validation split
        (["a", "validation=v"], ["train=b"], ["validation=v", "train=b"]),
        (["a", "validation=v"], ["validation=w"], ["a", "validation=w"]),
        (["train=a", "validation=v"], ["validation=w"], ["train=a", "validation=w"]),
        (["train=a", "gsm8k=g"], ["b", "validation=w"], ["b", "validation=w"]),
        (["a"], [], ["a"]),
        ([], ["b", "c"], ["b", "c"]),
    ],
)
def test_data_of_flags_replace_what_a_file_has_for_the_same(
    tmp_path: Path, in_file: list[str], flags: list[str], left: list[str]
) -> None:
    file = tmp_path / "experiment.yaml"
    own: dict[str, Any] = {"cluster": "local", **({"data": in_file} if in_file else {})}
    file.write_text(yaml.safe_dump({**own, "method": "ddp"}))
    options: dict[str, Any] = {"data": flags} if flags else {}
    assert list(read_request(file, options, beside={}).values.get("data") or ()) == left
    file.write_text(yaml.safe_dump({**own, "runs": [{"method": "z3"}]}))
    [run] = read_request(file, options, beside={}).runs
    assert list(run.values.get("data") or ()) == left
