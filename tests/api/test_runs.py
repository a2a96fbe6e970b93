"""Runs through the package: submitted, followed, read, cancelled, in one process and without a word printed."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas
import pytest
from made_runs import make_run
from submitted import ASKED, Trained

import hpc_llm
from hpc_llm.errors import HpcLlmError, Notice, RequestError
from hpc_llm.records.run import Outcome

pytestmark = pytest.mark.train


@pytest.fixture(autouse=True)
def _nothing_is_printed(trained: Trained, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert capfd.readouterr() == ("", "")


def test_a_run_knows_itself(trained: Trained) -> None:
    for run in trained.good:
        assert run.run_id == run.folder.name and run.folder.is_absolute() and run.job_id is not None
        assert run.script is not None and run.run_id in run.script
        assert run.result is not None and run.result["outcome"] == "COMPLETED"
        assert pickle.loads(pickle.dumps(run)) == run
    assert trained.bad.run_id == "bad"
    assert [run.status().outcome for run in trained.all] == [Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED]


def test_runs_are_named_in_many_ways(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, [first, second] = trained.logs, trained.good
    ids = [first.run_id, second.run_id]
    assert [s.run_id for s in hpc_llm.status(logs=logs)] == sorted([*ids, "bad"])
    assert [s.run_id for s in hpc_llm.status(reversed(trained.good))] == ids[::-1]
    for named in (first, first.run_id, first.run_id[:-1], first.folder, f"{first.folder}/"):
        assert [s.run_id for s in hpc_llm.status(named, logs=logs)] == ids[:1]
    assert first.job_id is not None
    assert [
        s.run_id for s in hpc_llm.status(first.job_id, logs=logs)
    ] == ids  # one queue of this machine has one number
    monkeypatch.setenv("HPC_LLM_LOGS", str(logs))
    assert [s.run_id for s in hpc_llm.wait("bad")] == ["bad"]


@pytest.mark.parametrize("named", ["nobody", "", "no/where"])
def test_a_name_that_no_run_has_is_one_sentence(trained: Trained, named: str) -> None:
    for verb in (hpc_llm.status, hpc_llm.wait, hpc_llm.results, hpc_llm.cancel, hpc_llm.diagnose):
        with pytest.raises(RequestError) as caught:
            verb(named, logs=trained.logs)  # type: ignore[operator]
        assert "\n" not in str(caught.value)
    for reading in (hpc_llm.parse, hpc_llm.parse_steps, hpc_llm.report):
        with pytest.raises(RequestError):
            reading(named)  # type: ignore[operator]


def test_results_are_rows_and_a_table(trained: Trained, tmp_path: Path) -> None:
    rows = hpc_llm.results(trained.all)
    assert [row.outcome for row in rows] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert (
        rows.to_dicts()
        == hpc_llm.parse(trained.all).to_dicts()
        == hpc_llm.parse([r.folder for r in trained.all]).to_dicts()
    )
    assert {row.run_id for row in hpc_llm.results(logs=trained.logs)} == {run.run_id for run in trained.all}
    failed = rows[2]
    assert failed.tokens_per_second is None and failed.loss_last is None and failed.outcome_reason
    frame = rows.to_pandas()
    assert frame["tokens_per_second"].isna().tolist() == [False, False, True]
    assert frame.set_index("method")["loss_last"]["z2o"] == rows[0].loss_last
    for ending in ("csv", "json", "jsonl", "md", "txt"):
        rows.write(tmp_path / f"rows.{ending}")
        assert "z2o" in (tmp_path / f"rows.{ending}").read_text()
    assert pandas.read_csv(tmp_path / "rows.csv")["run_id"].tolist() == [run.run_id for run in trained.all]


def test_a_table_has_the_same_types_whatever_is_missing(trained: Trained) -> None:
    rows = hpc_llm.results(trained.all)
    kinds = [
        hpc_llm.results(runs, logs=trained.logs).to_pandas().dtypes.map(str).to_dict()
        for runs in (trained.good, [trained.bad], trained.all, [])
    ]
    assert all(kind == kinds[0] for kind in kinds)
    assert [kinds[0][name] for name in ("method", "measured_steps", "mfu")] == ["string", "Int64", "float64"]
    steps = hpc_llm.parse_steps(trained.good).to_pandas()
    assert steps.groupby("run_id").size().tolist() == [6, 6]
    assert steps.dtypes.equals(hpc_llm.parse_steps(trained.bad).to_pandas().dtypes)
    rows[0].num_parameters = 10**30  # a log may print anything
    assert rows.to_pandas()["num_parameters"][0] == 10**30


def test_a_table_that_cannot_be_written_leaves_the_file(trained: Trained, tmp_path: Path) -> None:
    kept = tmp_path / "rows.csv"
    kept.write_text("mine")
    rows = hpc_llm.results(trained.good)
    with pytest.raises(RequestError, match="ending does not say"):
        rows.write(tmp_path / "rows.xlsx")
    with pytest.raises(RequestError, match="did you mean 'csv'"):
        rows.write(kept, "cvs")
    assert kept.read_text() == "mine" and list(tmp_path.iterdir()) == [kept]


def test_why_runs_ended(trained: Trained) -> None:
    causes = [found.cause.id for found in hpc_llm.diagnose(trained.all)]
    assert causes[:2] == ["none", "none"] and causes[2] != "none"
    [by_name] = hpc_llm.diagnose("bad", logs=trained.logs)
    assert (
        len(repr(by_name.cause)) < 100
    )  # what is printed in a notebook is the diagnosis, and not all signs of its cause
    [by_path] = hpc_llm.diagnose(trained.bad.folder)
    assert by_name.to_dict() == by_path.to_dict()
    assert json.loads(json.dumps(by_name.to_dict()))["cause"] == causes[2]


def test_a_report_of_runs(trained: Trained, tmp_path: Path) -> None:
    written = hpc_llm.report(trained.all, output=tmp_path / "page", baseline=trained.good[0])
    assert written.files[0].suffix == ".html" and all(file.exists() for file in written.files)
    assert "3 runs" in written.summary and written.regressions == []
    with pytest.raises(RequestError, match="is a file"):
        hpc_llm.report(trained.logs, output=written.files[0])


def test_what_a_run_printed_comes_as_text(trained: Trained) -> None:
    run = trained.good[0]
    printed = list(run.logs(follow=True))
    text = "".join(one.text for one in printed if one.stream == "stdout")
    assert text == run.paths.stdout.read_bytes().decode("utf-8", "replace") and "Training done" in text
    assert "".join(p.text for p in hpc_llm.logs(run.run_id, logs=trained.logs) if p.stream == "stdout") == text
    with pytest.raises(RequestError, match="2 runs are named"):
        hpc_llm.logs(trained.good, logs=trained.logs)  # type: ignore[arg-type]


def test_a_run_that_is_given_twice_counts_once(trained: Trained, tmp_path: Path) -> None:
    first = trained.good[0]
    for verb in (hpc_llm.status, hpc_llm.results, hpc_llm.parse):
        with pytest.warns(Notice, match="more than once, it counts once") as told:
            assert len(verb([first, first.run_id, first.folder], logs=trained.logs)) == 1
        assert {one.filename for one in told} == {__file__}
    with pytest.warns(Notice, match="counts once"):
        assert len(hpc_llm.parse([trained.logs, first])) == 3
    assert len(hpc_llm.parse([first.paths.stdout, trained.logs])) == 4
    made = hpc_llm.report(first.run_id, logs=trained.logs, output=tmp_path / "page", baseline=trained.good[1].run_id)
    assert made.report.baseline is not None


@pytest.mark.parametrize("named", [b"run", None.__class__, 3.5, True, [b"run"], [object()]])
def test_what_cannot_name_a_run_is_one_sentence(trained: Trained, named: object) -> None:
    for verb in (hpc_llm.status, hpc_llm.cancel, hpc_llm.diagnose, hpc_llm.results, hpc_llm.parse, hpc_llm.logs):
        with pytest.raises(RequestError, match="names no run: give a run, its name, its job id"):
            verb(named, logs=trained.logs)  # type: ignore[operator]


def test_a_job_id_may_be_a_number(trained: Trained) -> None:
    [first, second] = trained.good
    assert [one.run_id for one in hpc_llm.status(int(str(first.job_id)), logs=trained.logs)] == [
        first.run_id,
        second.run_id,
    ]
    with pytest.raises(RequestError, match=r"there is no run (?:of job 999999|'999999')"):
        hpc_llm.cancel(999999, logs=trained.logs)


def test_waiting_ends_when_it_was_asked_to(trained: Trained) -> None:
    sleeper = make_run(trained.logs.parent / "endless", "endless", {"plan": {}}, "#!/bin/bash\n")
    [seen] = hpc_llm.wait(sleeper.root, timeout=0.2)
    assert not seen.is_over
    with pytest.raises(RequestError, match="timeout is -1"):
        hpc_llm.wait(sleeper.root, timeout=-1)


def test_what_there_is_to_choose_from(trained: Trained) -> None:
    assert "delta" in {one.name for one in hpc_llm.clusters()} and hpc_llm.cluster("delta").name == "delta"
    assert "z3" in {one.name for one in hpc_llm.methods()} and hpc_llm.method("z3+o").letters == "z3+o"
    assert hpc_llm.model("tiny") in hpc_llm.models()


def test_waiting_tells_of_every_look(trained: Trained) -> None:
    looks: list[list[str]] = []
    hpc_llm.wait(trained.good, on_update=lambda statuses: looks.append([s.state for s in statuses]))
    assert looks == [["COMPLETED", "COMPLETED"]]
    assert hpc_llm.wait([]) == []


def test_a_run_is_cancelled_in_a_running_event_loop(tmp_path: Path) -> None:
    """As in a notebook, whose cells run within one."""

    async def cell() -> hpc_llm.Run:
        [run] = hpc_llm.submit(ASKED, method="z3", steps=1_000_000, logs=tmp_path)
        assert not run.status().is_over
        done = run.cancel()
        assert (done.run_id, done.problem, done.was_over) == (run.run_id, None, False)
        return run

    run = asyncio.run(cell())
    assert run.wait().outcome is Outcome.CANCELLED
    [again] = hpc_llm.cancel(run.folder)
    assert again.was_over and again.problem is None


def test_a_run_id_is_given_once(trained: Trained) -> None:
    with pytest.raises(HpcLlmError, match="bad"):
        hpc_llm.submit(ASKED, method="ddp", logs=trained.logs, run_id="bad")


def test_the_package_is_light_until_it_is_used() -> None:
    program = (
        "import sys, hpc_llm; assert set(hpc_llm.__all__) <= set(dir(hpc_llm)); hpc_llm.errors;"
        "heavy = {'pydantic', 'submitit', 'pandas', 'numpy', 'torch', 'yaml', 'jinja2', 'typer', 'matplotlib', 'psutil'};"
        "print(sorted(heavy & set(sys.modules)));"
        "[getattr(hpc_llm, name) for name in hpc_llm.__all__];"
        "print(sorted({'pandas', 'numpy', 'torch', 'submitit', 'matplotlib', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]


def test_a_name_that_the_package_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        hpc_llm.nothing_like_it  # noqa: B018


def test_what_there_is_can_be_listed_and_printed(trained: Trained) -> None:
    for module in (hpc_llm, hpc_llm.api):
        listed = dir(module)
        assert {"Options", "reconcile", "submit", "Rows"} <= set(listed)
        assert all(hasattr(module, name) for name in listed)
    assert hpc_llm.reconcile(logs=trained.logs, dry_run=True) == []
    [script] = hpc_llm.render(ASKED, method="z3", run_id="printed")
    assert str(script) == script.text
