"""`submit --resume RUN` without more asks for what the run was asked for; options win, and a stranger's record is held to a file's rules."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from rights import needs_root
from run_folders import Folder

from hpc_llm.api import diagnose, plan
from hpc_llm.api.resuming import _too_few
from hpc_llm.cli import run as command
from hpc_llm.errors import Notice, RequestError
from hpc_llm.planning.recipe import ramp_steps
from hpc_llm.planning.schedule import rate_factor
from hpc_llm.records.checkpoints import MANIFEST, not_finite_from, start_of
from hpc_llm.records.files import read_json, write_json
from hpc_llm.runs.wanted import sources_of

ASKED: dict[str, Any] = {
    "cluster": "local", "method": "lora", "task": "pretrain", "model": "tiny", "steps": 40, "micro_batch_size": 3, "save_every": 5,
    "set": ["peft.r=4", "optimizer.lr=3e-4"],
}  # fmt: skip


@pytest.fixture
def stopped(tmp_path: Path) -> Folder:
    """A run that kept a checkpoint behind step 5."""
    return asks(keeping(Folder(tmp_path / "logs" / "run-1")), **ASKED)


def keeping(folder: Folder) -> Folder:
    place = folder.run.checkpoint(5)
    (place / "engine").mkdir(parents=True)
    (place / "engine" / "shard-0.bin").write_bytes(b"x")
    write_json(place / MANIFEST, {"schema": 2, "step": 5, "files": {"engine/shard-0.bin": 1}})
    return folder


def asks(folder: Folder, **asked: Any) -> Folder:
    """With another request in its record, and the plan that follows from it."""
    made = [] if folder.run.experiment.exists() and "asked" in record(folder) else plan(asked)
    held = made[0].plan.to_dict() if made else record(folder)["plan"]
    write_json(folder.run.experiment, {**record(folder), "plan": held, "asked": asked})
    return folder


def record(folder: Folder) -> dict[str, Any]:
    return read_json(folder.run.experiment) or {}


def going_on(folder: Folder, **options: Any) -> Any:
    [made] = plan(resume=str(folder.run.root), logs=folder.run.root.parent, **options)
    return made


def kept_at(folder: Folder, *steps: int) -> Folder:
    for step in steps:
        place = folder.run.checkpoint(step)
        shutil.copytree(folder.run.checkpoint(5), place)
        write_json(place / MANIFEST, {"schema": 2, "step": step, "files": {"engine/shard-0.bin": 1}})
    return folder


@pytest.mark.parametrize(
    ("lost", "given", "start", "told"),
    [
        (None, "", 15, None),
        (12, "", 10, "from step 12 on: it goes on from step-10, kept before that, and not from step-15"),
        (11, "", 5, "from step 11 on: it goes on from step-5, kept before that, and not from step-15"),
        (12, "checkpoints/step-15", 15, "and step-15, from which it goes on, was kept behind that step: --resume "),
        (12, "checkpoints/step-5", 5, "from step 12 on: it goes on from step-5"),
        (6, "", 5, "and step-5, from which it goes on, gave that loss: begin the training anew, without --resume"),
        (4, "", 15, "and step-15, from which it goes on, was kept behind that step: begin the training anew, without --resume"),
        (2, "checkpoints/step-5", 5, "and step-5, from which it goes on, was kept behind that step: begin the training anew"),
    ],
)  # fmt: skip
def test_from_behind_a_loss_that_is_not_finite_nothing_goes_on_silently(
    stopped: Folder, lost: int | None, given: str, start: int, told: str | None
) -> None:
    kept_at(stopped, 10, 15).made(20, lost=lost)
    [made] = plan(resume=str(stopped.run.root / given), logs=stopped.run.root.parent)
    found = start_of(Path(made.plan.training.resume or ""))
    assert found is not None and found.step == start
    said = [one for one in made.notices if "not a finite number" in one]
    assert said == [] if told is None else (len(said) == 1 and told in said[0] and "run-1" in said[0])


def diverged(folder: Folder, lost: int, first: int = 1) -> Folder:
    """A run of this machine that made all its 40 steps, whose losses are not finite from one on."""
    reason = f"the loss is not a finite number from step {lost} on"
    return folder.local().exit(0).result("INVALID", invalid_reason=reason).made(40, lost=lost, first=first)


@pytest.mark.parametrize(("lost", "step"), [(38, 35), (36, 30), (7, 5)])
def test_behind_a_loss_that_is_not_finite_diagnose_goes_on_from_before_it(
    stopped: Folder, lost: int, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    diverged(kept_at(stopped, 30, 35, 40), lost)
    [made] = diagnose(stopped.run.root)
    first = made.remedy.splitlines()[0]
    assert f"go on behind step {step}, from before the loss that is not finite (step {lost}), with `" in first
    advised = [line.split("`")[1] for line in made.remedy.splitlines() if "--resume" in line]
    assert advised
    for line in advised:
        assert command([*shlex.split(line)[1:], "--dry-run"]) == 0, capsys.readouterr().err
        assert f"from step {lost} on: it goes on from step-{step}, kept before that" in capsys.readouterr().err


@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize(
    ("lost", "first", "way"),
    [(6, 1, "submit it again as it was submitted"), (2, 1, "submit it again as it was submitted"), (9, 9, "begin the training anew, without --resume")],
)  # fmt: skip
def test_where_nothing_before_that_loss_is_kept_diagnose_begins_anew(
    stopped: Folder, lost: int, first: int, way: str, retried: bool
) -> None:
    diverged(kept_at(stopped, 30, 40), lost, first)
    if first > 5:
        shutil.rmtree(stopped.run.checkpoint(5))
    if retried:  # its job was taken down later, of which a further try is worth it
        stopped.run.result.unlink()
        stopped.exit(143, signal="TERM").cancelled()
    [made] = diagnose(stopped.run.root)
    assert made.cause.id == ("cancelled" if retried else "nan_loss")
    assert made.remedy.startswith(
        f"do not go on from what it kept, for the loss is not a finite number from step {lost} on: {way}, with what follows"
    )
    assert "--resume run-1" not in made.remedy and ("--set optimizer.lr=" in made.remedy) is not retried
    assert "kept_step" not in made.details


def test_a_later_try_that_made_the_step_again_says_whether_its_loss_is_finite(stopped: Folder) -> None:
    """The queue began the job again, which made step 8 with a finite loss."""
    kept_at(stopped, 10).made(9, lost=8)
    earlier = stopped.run.tries / "1"
    earlier.mkdir(parents=True)
    shutil.move(stopped.run.steps, earlier / stopped.run.steps.name)
    assert not_finite_from(stopped.run) == 8
    assert not_finite_from(stopped.made(12, first=6).run) is None
    assert not_finite_from(stopped.made(12, first=10).run) == 8
    assert not_finite_from(stopped.made(12, first=6, lost=11).run) == 11


def test_a_step_without_a_token_to_predict_has_lost_nothing(stopped: Folder) -> None:
    stopped.run.steps.write_text('{"step": 1, "loss": null, "trained_tokens": 0}\n{"step": 2, "loss": 4.5}\n')
    assert not_finite_from(stopped.run) is None


def test_all_that_was_asked_for_is_asked_for_again(stopped: Folder) -> None:
    made = going_on(stopped)
    own, before = made.plan, record(stopped)["plan"]
    assert own.training.resume == str(stopped.run.root)
    assert (own.training.steps, own.batch.micro_batch_size, own.model.peft.r, own.optimizer.lr) == (40, 3, 4, 3e-4)
    assert {**own.to_dict(), "workload": None} == {**before, "workload": None}
    assert made.origins["steps"] == "resume run-1"
    assert made.asked == {**ASKED, "resume": str(stopped.run.root)}


def test_options_win_over_what_was_asked(stopped: Folder) -> None:
    own = going_on(stopped, steps=60, set=["optimizer.lr=1e-4"]).plan
    assert (own.training.steps, own.optimizer.lr, own.batch.micro_batch_size) == (60, 1e-4, 3)
    with pytest.raises(RequestError, match="nothing is left to train"):
        going_on(stopped, steps=4)


def test_too_few_steps_to_measure_are_told_before_with_what_could_be_measured(stopped: Folder) -> None:
    [few] = going_on(stopped, steps=10, warmup_steps=5).notices[-1:]
    assert few.startswith("steps left behind the checkpoint: 5, of which 5 of warm-up, and 3 must be measured: ")
    assert few.endswith(" INVALID as a measurement. --warmup-steps 2, or --steps 13 or more can be measured")
    [two] = going_on(stopped, steps=7, warmup_steps=1).notices[-1:]
    assert two.endswith(" INVALID as a measurement. --steps 9 or more can be measured")
    for enough in ({"steps": 13, "warmup_steps": 5}, {"steps": 10, "warmup_steps": 2}):
        assert not any("INVALID" in one for one in going_on(stopped, **enough).notices)


def test_steps_that_follow_from_epochs_are_asked_for_with_epochs(stopped: Folder) -> None:
    """Beside --epochs, --steps is refused."""
    work = going_on(stopped, steps=10, warmup_steps=5).plan.training
    told = _too_few(5, work, is_by_epochs=True)
    assert told is not None
    assert told.endswith("--warmup-steps 2, or --epochs that make 13 steps or more can be measured")


@pytest.mark.parametrize("steps", [1500, 7])
def test_with_other_steps_the_learning_rate_goes_on_as_it_was(stopped: Folder, steps: int) -> None:
    """It rose to its peak within the ramp of 40 steps; that of 1500 would take it back into one."""
    before = record(stopped)["plan"]["workload"]["lr_ramp_steps"]
    assert before == ramp_steps(40) != ramp_steps(steps)
    for more in ({}, {"cluster": "local", "method": "lora", "model": "tiny", "set": ["peft.r=4"]}):
        made = going_on(stopped, steps=steps, warmup_steps=1, **more)
        work = made.plan.training
        assert work.lr_ramp_steps == before and made.origins["lr_ramp_steps"].startswith(
            "as in run-1, which it goes on"
        )
        rates = [rate_factor(work.lr_schedule, number, work.lr_ramp_steps, work.steps) for number in (5, 6, 7)]
        assert rates == [rate_factor("constant", number, before, 40) for number in (5, 6, 7)]
    said = going_on(stopped, steps=steps, warmup_steps=1, set=["lr_ramp_steps=3"])
    assert said.plan.training.lr_ramp_steps == 3 and "set" in said.origins["lr_ramp_steps"]


def test_a_ramp_that_was_kept_is_kept_once_more(stopped: Folder, tmp_path: Path) -> None:
    longer = going_on(stopped, steps=1500)
    write_json(stopped.run.experiment, {**record(stopped), "plan": longer.plan.to_dict(), "asked": longer.asked})
    assert going_on(stopped, steps=3000).plan.training.lr_ramp_steps == ramp_steps(40)


def _given_away(checkpoint: Path) -> Path:
    needs_root("give a file away")
    [file] = (path for path in checkpoint.rglob("*") if path.is_file() and path.name != MANIFEST)
    os.chown(file, 65534, 65534)
    return file


def _open_to_a_group(checkpoint: Path) -> Path:
    (checkpoint / MANIFEST).chmod(0o664)
    return checkpoint / MANIFEST


def _all_somebody_else_s(checkpoint: Path) -> Path:
    needs_root("give a file away")
    for path in (checkpoint, *checkpoint.rglob("*")):
        os.chown(path, 65534, 65534)
    return checkpoint


def _linked(checkpoint: Path) -> Path:
    (checkpoint / "more.pt").symlink_to(MANIFEST)
    return checkpoint / "more.pt"


@pytest.mark.parametrize("spoil", [_given_away, _open_to_a_group, _all_somebody_else_s, _linked])
def test_what_somebody_else_can_have_written_is_refused_when_planning_and_a_copy_is_not(
    stopped: Folder, spoil: Callable[[Path], Path], tmp_path: Path
) -> None:
    checkpoint = stopped.run.checkpoint(5)
    path = spoil(checkpoint)
    with pytest.raises(RequestError) as refused:
        going_on(stopped, steps=60)
    said = str(refused.value)
    assert str(path) in said and "belongs to somebody else, or others may write it" in said
    if spoil is not _linked:
        words = said[said.index("`cp ") + 1 :].split("`")[0]
        subprocess.run(["sh", "-c", words.replace("COPY", "copy")], check=True, cwd=tmp_path)
        [made] = plan(resume=str(tmp_path / "copy"), cluster="local", method="lora", model="tiny", steps=60)
        assert made.plan.training.resume == str(tmp_path / "copy")


def test_with_a_method_all_is_said_anew(stopped: Folder) -> None:
    own = going_on(stopped, cluster="local", method="lora", model="tiny", steps=9, set=["peft.r=4"]).plan
    assert (own.training.steps, own.batch.micro_batch_size) == (9, 1)


def test_a_record_that_says_nothing_of_it_leaves_it_to_the_user(stopped: Folder) -> None:
    held = record(stopped)
    del held["asked"]
    write_json(stopped.run.experiment, held)
    with pytest.raises(RequestError, match="no cluster is given"):
        going_on(stopped)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"set": ["env.LD_PRELOAD=/x.so"]}, "LD_PRELOAD"),
        ({"env_file": "/somebody/env"}, "named by --env-file on the command line"),
        ({"sbatch": ["output=/x/log"]}, "output"),
    ],
)
def test_what_somebody_else_may_have_written_decides_no_code(stopped: Folder, more: dict[str, Any], said: str) -> None:
    asks(stopped, **{**ASKED, **more})
    stopped.run.experiment.chmod(0o666)
    with pytest.raises(RequestError, match=said):
        going_on(stopped)


@pytest.mark.parametrize(
    "more", [{"templates": "/x"}, {"force": True}, {"stps": 5}, {"steps": "many"}, {"model": ["a"]}]
)
def test_a_record_that_asks_for_nonsense_is_refused(stopped: Folder, more: dict[str, Any]) -> None:
    asks(stopped, **{**ASKED, **more})
    with pytest.raises(RequestError, match=r"experiment\.json"):
        going_on(stopped)


@pytest.mark.parametrize("place", ["backup/step-5", "backup/checkpoints/step-5"])
def test_a_copy_of_a_checkpoint_takes_nothing_from_what_lies_around_it(
    stopped: Folder, place: str, tmp_path: Path
) -> None:
    copy = tmp_path / place
    shutil.copytree(stopped.run.checkpoint(5), copy)
    around = copy.parent.parent
    write_json(around / "experiment.json", {**record(stopped), "asked": {**ASKED, "steps": 77, "method": "z3"}})
    with pytest.warns(Notice, match="it lies in no run of yours"), pytest.raises(RequestError, match="no cluster"):
        plan(resume=str(copy))
    [made] = plan(resume=str(copy), cluster="local", method="z1", model="tiny", steps=60)
    assert (made.plan.method, made.plan.training.steps) == ("z1", 60)
    assert sources_of(copy) == []
    assert sources_of(stopped.run.checkpoint(5)) == [stopped.run] == sources_of(stopped.run.root)


def test_what_others_wrote_beside_a_checkpoint_of_mine_asks_for_nothing(stopped: Folder) -> None:
    needs_root("give a file away")
    os.chown(stopped.run.experiment, 65534, 65534)
    with pytest.warns(Notice, match="it lies in no run of yours"), pytest.raises(RequestError, match="no cluster"):
        plan(resume=str(stopped.run.checkpoint(5)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {},
            "steps left behind step 5: 95, which take 01:36:35 with the start at the 60 s a step of run-1, and the time limit is "
            "00:30:00: it ends the job after about 28 of them, and --resume goes on from what it keeps by then. --time 02:05:00 leaves room for all",
        ),
        ({"time": "02:05:00"}, None),
        ({"steps": 30}, None),
        ({"micro_batch_size": 4}, None),
    ],
)
def test_a_time_limit_that_cuts_the_rest_off_too_is_told_by_the_runs_own_pace(
    tmp_path: Path, options: dict[str, Any], said: str | None
) -> None:
    folder = keeping(Folder(tmp_path / "logs" / "run-1"))
    asks(
        folder,
        cluster="delta",
        account="bbka-delta-gpu",
        method="z3",
        model="tiny",
        steps=100,
        save_every=5,
        time="00:30:00",
    )
    write_json(
        folder.run.exit,
        {"schema": 1, "run_id": "run-1", "exit_code": 143, "signal": "TERM", "started_at": 1_790_000_000},
    )
    lines = [
        {"step": k, "loss": 6.0, "step_time_s": 60.0, "warmup": k <= 5, "time": 1_790_000_095.0 + 60 * k}
        for k in range(1, 20)
    ]
    folder.run.steps.write_text("".join(json.dumps(one) + "\n" for one in lines))
    told = [one for one in going_on(folder, **options).notices if one.startswith("steps left behind step")]
    assert told == ([said] if said else [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"cluster": "local", "method": "z3", "model": "tiny"},
            "was trained with peft lora, and what is asked for is trained without peft: its weights do not fit. To go on, leave "
            "--method out, or give --method lora.",
        ),
        (
            {"cluster": "local", "method": "lora", "model": "tiny"},
            "was trained with peft r=4, and what is asked for is trained with peft r=8: its weights do not fit. To go on, leave out "
            "what changes peft.",
        ),
        (
            {"model": "tiny-h8"},
            "was trained with model tiny, and what is asked for is trained with model tiny-h8: its weights do not fit. To go on, give "
            "--model tiny.",
        ),
        (
            {"method": "z3"},
            "no cluster is given: beside --method or an experiment file --resume takes the checkpoint of the run alone. Leave these out "
            "to ask for the same again, or say all of it anew. Use --cluster NAME",
        ),
    ],
)
def test_what_does_not_go_on_from_a_checkpoint_says_what_differs_and_how_to_go_on(
    stopped: Folder, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(RequestError) as refused:
        going_on(stopped, steps=60, **options)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "asked",
    [
        {"set": [*ASKED["set"], "env.LD_PRELOAD=/x/y.so"]},
        {"sbatch": ["mail-user=a@b.example"]},
        {"env_file": "/x/variables"},
    ],
)
def test_what_an_unpacked_run_was_asked_with_loads_no_code_and_leads_nowhere(
    stopped: Folder, asked: dict[str, Any], tmp_path: Path
) -> None:
    """It is this user's file. What this user has submitted, as a note outside of all runs says, may ask for it."""
    Path(tmp_path / "variables").touch(0o600)
    asked = {name: str(tmp_path / "variables") if name == "env_file" else one for name, one in asked.items()}
    said = {**record(stopped), "asked": {**ASKED, **asked}}
    write_json(stopped.run.experiment, said)
    with pytest.raises(RequestError):
        going_on(stopped, steps=60)
    noted = make_run(tmp_path / "noted", "run-1", said, "true\n")
    shutil.copytree(stopped.run.checkpoints, noted.checkpoints)
    assert plan(resume=str(noted.root), steps=60)[0].plan.training.steps == 60
    moved = tmp_path / "unpacked" / "run-1"
    shutil.copytree(noted.root, moved)
    with pytest.raises(RequestError):
        plan(resume=str(moved), steps=60)
