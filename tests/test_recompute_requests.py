"""A share of the layers is recomputed: how it is asked for, what comes of `auto`, and what else says of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rendering import planned

import hpc_llm
from hpc_llm.api.fit import memory_there
from hpc_llm.cli import run as command
from hpc_llm.diagnosis.ladder import alternatives, rungs
from hpc_llm.errors import HpcLlmError, PlanError
from hpc_llm.estimating.parts import Fit
from hpc_llm.parsing.formats.own_run import rows
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.method import load_method
from hpc_llm.site.cluster import load_cluster


@pytest.mark.parametrize(
    ("asked", "name", "letters", "share"),
    [
        ("z3+r0.25", "z3+r0.25", "z3+r0.25", 0.25),
        ("Z3+R.50+F", "z3+r0.5+f", "z3+r0.5+f", 0.5),
        ("z3+r1.0", "z3+r", "z3+r", True),
        ("z3+rauto", "z3+rauto", "z3+rauto", "auto"),
        ("q-hpc2+r0.5", "q-hpc2+r0.5", "q+r0.5", 0.5),
        ("q-hpc2", "q-hpc2", "q+r", True),
    ],
)
def test_a_share_is_a_letter_with_a_number(asked: str, name: str, letters: str, share: Any) -> None:
    method = load_method(asked)
    assert (method.name, method.letters) == (name, letters)
    assert method.recompute == share and isinstance(method.recompute, type(share))


@pytest.mark.parametrize("letter", ["r1.5", "r0", "r-1", "r0.2.5"])
def test_what_is_no_share_is_told_with_what_is(letter: str) -> None:
    with pytest.raises(PlanError) as caught:
        load_method(f"z3+{letter}")
    assert str(caught.value) == (
        f"method 'z3+{letter}': {letter} is no share of the layers to recompute: valid are r (all layers), a share above 0 and up "
        "to 1 as r0.25, and rauto (as few as fit)."
    )


def test_two_shares_exclude_each_other() -> None:
    with pytest.raises(PlanError, match=r"r0\.25 and r exclude each other"):
        load_method("z3+r0.25+r")


@pytest.mark.parametrize(
    ("method", "model", "settings", "share", "origin"),
    [
        ("z3+r0.25", "llama2-7b", (), 0.25, "method z3+r0.25: 8 of 32 layers"),
        ("z3", "llama2-7b", ("recompute=0.3",), 0.3, "request: set: 10 of 32 layers"),
        ("z3+r0.25", "tiny", (), 0.25, "method z3+r0.25: 1 of 2 layers"),
        ("z3+r0.25", "llama2-7b", ("recompute=1",), True, "request: set"),
        ("z3+rauto", "llama2-7b", ("recompute=0",), False, "request: set"),
        ("z3+r", "llama2-7b", (), True, "method z3+r"),
    ],
)
def test_the_plan_says_how_many_layers_that_are(
    method: str, model: str, settings: tuple[str, ...], share: Any, origin: str
) -> None:
    found = planned("delta", method, model=model, set=settings)
    assert found.plan.model.recompute is share or found.plan.model.recompute == share != bool(share)
    assert found.origins["recompute"] == origin
    assert Plan.from_dict(found.plan.to_dict()) == found.plan


def left_to_the_estimate(method: str, **asked: Any) -> Any:
    shape = {"model": "llama2-7b", "sequence_length": 2048, "gpus_per_node": 4, **asked}
    return hpc_llm.plan(cluster="delta", account="bbka-delta-gpu", method=method, **shape)[0]


def fits(plan: Plan) -> bool:
    memory = memory_there(plan, load_cluster("delta"))
    assert memory is not None and memory.device is not None
    return memory.device.verdict is Fit.FITS


@pytest.mark.parametrize("size", [4, 8])
def test_auto_recomputes_as_few_layers_as_fit(size: int) -> None:
    found = left_to_the_estimate("z3+rauto", micro_batch_size=size)
    share, layers = found.plan.model.recompute, round(32 * found.plan.model.recompute)
    assert 0 < layers < 32 and share == round(layers / 32, 4)
    assert f"z3+rauto: {layers} of 32 layers, the fewest with which it fits" in found.origins["recompute"]
    assert (found.plan.method, found.plan.letters) == ("z3+rauto", f"z3+r{share:g}")
    one_less = left_to_the_estimate(f"z3+r{(layers - 1) / 32}", micro_batch_size=size)
    assert fits(found.plan) and not fits(one_less.plan)
    of_setting = left_to_the_estimate("z3", micro_batch_size=size, set={"recompute": "auto"})
    assert of_setting.plan.changed(method="z3+rauto", job_name="", deepspeed={}) == found.plan.changed(
        job_name="", deepspeed={}
    )


@pytest.mark.parametrize(
    ("asked", "share", "said"),
    [
        ({"micro_batch_size": 1, "sequence_length": 350}, False, "no layer, for it fits"),
        ({"model": "llama2-70b"}, True, "all layers, with which the estimate still says: does not fit"),
    ],
)
def test_auto_is_nothing_where_all_fits_and_everything_where_nothing_does(
    asked: dict[str, Any], share: bool, said: str
) -> None:
    found = left_to_the_estimate("z3+rauto", **asked)
    assert found.plan.model.recompute is share and said in found.origins["recompute"]
    assert found.plan.letters == ("z3+r" if share else "z3")
    [estimated] = hpc_llm.estimate(
        cluster="delta", method="z3+rauto", **{"model": "llama2-7b", "gpus_per_node": 4, **asked}
    )
    assert estimated.verdict is (Fit.DOES_NOT_FIT if share else Fit.FITS)


def test_an_estimate_says_how_many_layers_it_chose_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "estimate --cluster delta --account a --model llama2-7b --gpus-per-node 4 --sequence-length 2048 --micro-batch-size 4"
    share = left_to_the_estimate("z3+rauto", micro_batch_size=4).plan.model.recompute
    said = f"{round(32 * share)} of 32 layers, the fewest with which it fits by the estimate"
    assert command([*asked.split(), "--method", "z3+rauto"]) == 0
    assert f"\nrecomputed: {said}\n" in capsys.readouterr().out
    assert command([*asked.split(), "--method", "z3+rauto", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recomputed"] == said
    assert command([*asked.split(), "--method", "z3+rauto,z3+r0.25,z3+r"]) == 0
    listed = capsys.readouterr().out.replace("\n  ", " ")
    assert f"recomputed by delta z3+rauto: {said}" in listed and listed.count("recomputed by") == 1
    assert command([*asked.split(), "--method", "z3+r0.25"]) == 0
    assert "\nrecomputed: 8 of 32 layers\n" in capsys.readouterr().out
    assert command([*asked.split(), "--method", "z3+r"]) == 0
    assert "recomputed:" not in capsys.readouterr().out


def test_a_search_and_an_inference_leave_nothing_to_the_estimate() -> None:
    with pytest.raises(PlanError, match=r"task tune looks for the micro batch.*--set recompute=0\.25"):
        planned("delta", "z3+rauto", task="tune")
    with pytest.raises(HpcLlmError, match="recomputes what a backward pass needs"):
        planned("delta", "ddp+rauto", task="infer")


@pytest.mark.parametrize(("method", "settings"), [("z2+r0.25", ()), ("z2", ("recompute=0.25",)), ("z2-hpc2", ())])
def test_the_steps_to_less_memory_go_on_from_a_share(method: str, settings: tuple[str, ...]) -> None:
    if method == "z2-hpc2":
        method, settings = "z2o-hpc2", ("recompute=0.25",)
    plan = planned("delta", method, model="llama2-7b", set=settings).plan
    first, *others = rungs(plan)
    assert first.flags == "--set recompute=true" and "of all layers" in first.why
    assert first.plan.model.recompute is True and first.plan.method == method
    assert all("--set recompute=true" in one.flags for one in others)
    shares = {one.plan.letters: one.plan.model.recompute for one in alternatives(plan)}
    assert shares.get("z3+r0.25", 0.25) == 0.25 and True in shares.values()


@pytest.mark.parametrize(
    ("recorded", "column"), [(True, 1.0), (False, 0.0), (0.25, 0.25), ("maybe", None), (1.5, None)]
)
def test_a_row_has_the_share_whatever_the_record_calls_it(recorded: Any, column: float | None, tmp_path: Path) -> None:
    old = Path(__file__).parent / "runs" / "version_0_1" / "completed"
    run = tmp_path / "run"
    shutil.copytree(old, run)
    record = json.loads((run / "experiment.json").read_text(encoding="utf-8"))
    record["plan"]["recompute"] = recorded
    (run / "experiment.json").write_text(json.dumps(record), encoding="utf-8")
    [row] = rows([run])
    assert row.recompute == column and not isinstance(row.recompute, bool)
