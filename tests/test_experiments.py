"""The experiment files of the source projects: all their runs plan and render, and each published line is one of them or says why not."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT

import hpc_llm
from hpc_llm.api.corpora import NotPreparedError
from hpc_llm.corpus.sets import KNOWN_SETS
from hpc_llm.planning.experiment import PlanWithOrigins
from hpc_llm.planning.reference import units_of
from hpc_llm.reporting import collect, make_report
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.tasks.prepare import request_of

FILES = sorted(path.name for path in (ROOT / "experiments").glob("*.yaml"))
NO_ACCOUNT_IN_FILE = {"delta": "bbka-delta-gpu"}
ROWS: dict[str, dict[str, Any]] = {
    "wikitext-2-raw-v1": {"text": "a line of text " * 10},
    "gsm8k": {"question": "How many?", "answer": "four"},
    "mosaicml/instruct-v3": {"prompt": "Say it. " * 100, "response": "It. " * 200},
    "glue/sst2": {"sentence": "a film of some charm " * 20, "label": 1},
    "dialogsum": {"dialogue": "A: Well. B: Well, well.", "summary": "They greet."},
    "smangrul/ultrachat-10k-chatml": {
        "messages": [{"role": "user", "content": "Why? " * 100}, {"role": "assistant", "content": "So. " * 500}]
    },
}
"""A row of each set as the Hub has it, but made up."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the files, and with data of the sets' form under the sets' names."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(ROOT / "experiments", folder / "experiments")
    for name, row in ROWS.items():
        made = folder / "sets" / name.replace("/", "-")
        made.mkdir(parents=True)
        validation = KNOWN_SETS[name].validation
        for split in ("train", validation):
            (made / f"{split}.jsonl").write_text((json.dumps(row) + "\n") * 1200)
    (folder / "climate_text_dataset").mkdir()
    for split in ("train", "validation"):
        (folder / "climate_text_dataset" / f"{split}.jsonl").write_text(json.dumps({"text": "warm " * 100000}) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SBATCH_ACCOUNT", "bbka-delta-gpu")
        yield folder


def local(value: Any) -> Any:
    """The content of a file in which the Hub's sets are the folders of the same form."""
    if isinstance(value, dict):
        return {key: local(one) for key, one in value.items()}
    if isinstance(value, list):
        return [local(one) for one in value]
    return f"{value}=sets/{value.replace('/', '-')}" if value in ROWS else value


def planned(file: str, **how: Any) -> list[PlanWithOrigins]:
    """All runs of a file, with their data prepared as the refusal says."""
    content = local(yaml.safe_load(Path("experiments", file).read_text()))
    for _ in range(9):
        try:
            return hpc_llm.plan(content, **how)
        except NotPreparedError as lack:
            [preparation] = hpc_llm.plan(**lack.preparation)
            assert preparation.plan.training.caches is not None
            prepare(request_of(preparation.plan), Path(preparation.plan.training.caches), lambda text: None)
    raise AssertionError(f"{file}: it asks for data again and again")


@pytest.fixture(scope="module")
def full(place: Path) -> dict[str, list[PlanWithOrigins]]:
    return {file: planned(file) for file in FILES}


def runs_of(plans: list[PlanWithOrigins]) -> dict[str, PlanWithOrigins]:
    return {one.study.name: one for one in plans if one.study}


def test_each_run_plans_and_renders_at_its_size(full: dict[str, list[PlanWithOrigins]]) -> None:
    assert {name: len(plans) for name, plans in full.items()} == {
        "bdml-climate.yaml": 6, "cisc662-platforms.yaml": 25, "hpc2-pretrain.yaml": 18, "lzu-5090.yaml": 14,
        "p4d-scaling.yaml": 30, "paper-2311.yaml": 48, "peft-offload.yaml": 3, "qwen-lengths.yaml": 15,
    }  # fmt: skip
    for file, plans in full.items():
        content = local(yaml.safe_load(Path("experiments", file).read_text()))
        scripts = [script for batch in hpc_llm.prepare(content) for script in batch.scripts]
        assert len(scripts) == len(plans) and all("launch " in script.text for script in scripts)


@pytest.mark.parametrize("elsewhere", [{}, {"cluster": ["local"]}])
@pytest.mark.parametrize("file", FILES)
def test_each_run_is_small_with_smoke_there_and_on_this_machine(
    full: dict[str, list[PlanWithOrigins]], file: str, elsewhere: dict[str, Any]
) -> None:
    small = planned(file, smoke=True, **elsewhere)
    assert runs_of(small).keys() == runs_of(full[file]).keys()
    for one in small:
        assert one.plan.model.name in ("tiny", "tiny-h8", "flan-t5-small") and one.plan.training.steps <= 8
        assert one.study and one.study.smoke and one.study.expect is None
        assert all(
            source.split("=")[-1].startswith(str(Path("experiments", "smoke").absolute()))
            for source in one.plan.training.data
        )


MAP = list(csv.DictReader((ROOT / "experiments" / "map.csv").open(newline="")))
PROJECTS = {
    "LZU HPC AI 2025": 45,
    "Advanced-Project-QLORA-Tensor-Parallelism": 109,
    "CISC-662": 29,
    "BDML": 12,
    "HPC-II": 75,
    "Qwen": 30,
    "PEFT": 16,
}
"""Published lines of each."""


def test_each_published_line_is_a_run_or_says_why_not(full: dict[str, list[PlanWithOrigins]]) -> None:
    """And each reference, and each expected end that was published, is of such a line."""
    assert {name: sum(line["project"] == name for line in MAP) for name in PROJECTS} == PROJECTS
    said: dict[tuple[str, str, str], dict[str, str]] = {}
    for line in MAP:
        assert bool(line["run"]) != bool(line["reason"]), line
        assert line["run"] or not (line["file"] or line["result"] or line["reference"]), line
        if line["run"]:
            key = (line["file"], line["run"], line["result"])
            assert key not in said, f"two lines are one figure: {key}"
            said[key] = line
    there = {
        (file, name, result): (one.study.reference[result].value, one.study.reference[result].unit)
        for file, plans in full.items()
        for name, one in runs_of(plans).items()
        if one.study
        for result in one.study.reference
    }
    figures = {key: (float(v["reference"]), v["reference_unit"]) for key, v in said.items() if key[2] != "expect"}
    assert figures == there
    for (file, name, result), line in said.items():
        study = runs_of(full[file])[name].study
        assert study is not None
        if result == "expect":
            assert study.expect == line["reference"], line
        else:
            held = study.reference[result]
            assert held.in_unit_of(result) > 0 and held.unit in units_of(result) and held.tolerance is not None


def test_the_figures_are_those_that_were_published() -> None:
    """As printed, but for minutes written with a colon, parts of an epoch, and samples of 2048 tokens."""
    factors = {"samples/s": (2048.0,), "min (mm:ss or decimal as printed)": (1.0, 2.0, 4.0)}
    for line in MAP:
        if line["run"] and line["result"] != "expect":
            minutes, _, seconds = line["value"].partition(":")
            value = float(minutes) + float(seconds or 0) / 60
            expected = [pytest.approx(value * factor, abs=1e-3) for factor in factors.get(line["unit"], (1.0,))]
            assert float(line["reference"]) in expected, line


def test_files_heed_what_names_in_their_sources_hide(full: dict[str, list[PlanWithOrigins]]) -> None:
    """The traps of the sources: what a name there does not say."""
    lzu = runs_of(full["lzu-5090.yaml"])
    assert all(one.plan.model.recompute for name, one in lzu.items() if name.startswith("qlora"))
    assert lzu["full"].plan.optimizer.type == "AdamWBF16" and lzu["lora"].plan.training.steps == 2 * 1200 // 4
    p4d = runs_of(full["p4d-scaling.yaml"])
    assert p4d["7b-lora-8"].study and p4d["7b-lora-8"].study.reference["epoch_time_s"].value == 1052.4219
    assert p4d["7b-lora-8"].plan.model.quantization is None and not p4d["7b-qlora-8"].study.reference  # type: ignore[union-attr]
    assert {one.plan.parallel.world_size for one in p4d.values()} == {2, 4, 8}
    assert all(p4d[f"tp-{n}"].plan.parallel.tensor == n and p4d[f"tp-{n}"].plan.parallel.data == 1 for n in (2, 4, 8))
    assert all(not one.study.reference for one in full["paper-2311.yaml"] if one.study)
    assert lzu["qlora-profile"].plan.training.profile == "torch" and lzu["qlora-r"].plan.training.profile is None
    cisc = runs_of(full["cisc662-platforms.yaml"])
    assert [cisc[f"delta-mistral-7b-v0.2-{name}"].plan.training.profile for name in ("nsys", "ncu")] == ["nsys", "ncu"]
    climate = runs_of(full["bdml-climate.yaml"])
    assert "peak_allocated_bytes" not in climate["batch-19"].study.reference  # type: ignore[union-attr]


REALLY_RUN = {
    "lzu-5090.yaml": ("full", "qlora-z3-r"),
    "hpc2-pretrain.yaml": ("v100-q-r",),
    "p4d-scaling.yaml": ("7b-lora-8",),
}
"""Of the kinds of runs those that no other test trains so. Inference, T5 and each
engine by itself are run in tests/worker, other launchers in tests/worker/test_launchers.py; `make smoke` runs all."""


@pytest.mark.train
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("copied_ranks")
@pytest.mark.parametrize("file", REALLY_RUN)
def test_small_runs_run(place: Path, tmp_path: Path, file: str) -> None:
    """And no reference changes what is measured, or is held against it."""
    content = yaml.safe_load((ROOT / "experiments" / file).read_text())
    content["runs"] = [one for one in content["runs"] if one["name"] in REALLY_RUN[file]]
    handles = hpc_llm.submit(content, smoke=True, cluster=["local"], logs=tmp_path / "logs")
    ended = hpc_llm.wait(handles)
    assert [one.outcome for one in ended] == ["COMPLETED"] * len(REALLY_RUN[file])
    held = make_report(collect([tmp_path / "logs"])).references.held
    assert all(one.ratio is None for one in held)
    assert all("smoke" in one.verdict for one in held if one.measured is not None)
    assert any(one.measured for one in held)
