"""What a training keeps: checkpoints on time and on a signal, whole or not there, from which it goes on; the model for use."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from copied_ranks import variables_for
from tells_its_pid import told_in
from test_worker_signals import PROGRAM, TWO, WORKER, wait_for_steps
from tiny_models import save
from tiny_plans import RunPlan, make_plan, start_worker
from worlds import Worlds

from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.checkpoints import kept_in
from hpc_llm.records.files import read_json, read_json_lines, write_json
from hpc_llm.records.models import MANIFEST, is_whole_model
from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.train

HERE = Path(__file__).parent


def losses(run: RunPaths) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in read_json_lines(run.steps)}


def steps_kept(run: RunPaths) -> list[int]:
    return [one.step for one in kept_in(run.root)]


def until(what: str, is_so: Callable[[], bool], seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def result_of(run: RunPaths) -> dict[str, Any]:
    return read_json(run.result) or {}


def finish(run: RunPaths, plan: Plan, *launch: str, code: int = 0, **environ: str) -> dict[str, Any]:
    process = start_worker(run.root, plan, *launch, **environ)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == code, errors[-3000:]
    return result_of(run)


def put_away(run: RunPaths) -> None:
    """As the job script does before the next try."""
    number = len(run.earlier_tries()) + 1
    (run.tries / str(number)).mkdir(parents=True)
    for name in run.left_by_try():
        shutil.move(run.root / name, run.tries / str(number) / name)


# --- two ranks, LoRA under ZeRO-3: signals, going on, the adapter ----------------------------------------------------


class Story:
    """A run that was asked to save, then told to stop; one that went on; one that was never interrupted."""

    def __init__(self, folder: Path, worlds: Worlds, copies: Path) -> None:
        self.base = save(folder / "base", "llama")
        self.first, self.rest, self.whole = (RunPaths(folder / name) for name in ("first", "rest", "whole"))
        plan = self.plan(steps=100_000, save_every=50_000)
        process = start_worker(self.first.root, plan, *TWO, str(PROGRAM), **variables_for(copies))
        wait_for_steps(self.first)
        one, other = told_in(self.first.root, 2)
        os.kill(one, signal.SIGUSR1)
        until("a checkpoint on SIGUSR1", lambda: bool(steps_kept(self.first)))
        self.on_usr1 = steps_kept(self.first)
        count = len(losses(self.first))
        wait_for_steps(self.first, count + 3)
        os.kill(other, signal.SIGTERM)
        self.out, self.errors = process.communicate(timeout=200)
        self.stopped = steps_kept(self.first)[-1]
        self.last = self.stopped + 8
        plans = {
            self.rest: self.plan(steps=self.last, resume=str(self.first.root), save_every=5),
            self.whole: self.plan(steps=self.last + 1),
        }
        wanted = {run.root.name: {"plan": plan.to_dict(), "mask": False} for run, plan in plans.items()}
        (folder / "request.json").write_text(json.dumps(wanted))
        worlds.must_run("two_ranks", folder, 2)

    def plan(self, **more: Any) -> Plan:
        return make_plan("z3lora", 2, model=str(self.base), precision="fp32", **more)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, worlds: Worlds, copies: Path) -> Story:
    return Story(tmp_path_factory.mktemp("story"), worlds, copies)


def test_a_rank_that_gets_sigusr1_has_all_save_and_go_on(story: Story) -> None:
    [step] = story.on_usr1
    assert step in losses(story.first) and max(losses(story.first)) > step
    assert story.errors.count("steps done, stands at:\n") == 1


def test_a_rank_that_gets_sigterm_has_all_save_at_the_same_step_and_end(story: Story) -> None:
    assert max(losses(story.first)) == story.stopped
    result = result_of(story.first)
    assert result["outcome"] == "UNKNOWN"  # why it was sent, others know
    said = f"stopped by SIGTERM after step {story.stopped} of 100000"
    way = f"saved behind step {story.stopped}, go on with `hpc-llm submit --resume first --logs {story.first.root.parent}`"
    assert said in result["outcome_reason"] and way in result["outcome_reason"]
    assert len(list(story.first.failures.iterdir())) == 2
    assert story.errors.count(f"pretrain_llm: {way}") == 2  # ends of lines of two ranks may change places
    assert [Path(one).name for one in result["kept"]["checkpoints"]] == [
        f"step-{step}" for step in (*story.on_usr1, story.stopped)
    ]


@pytest.mark.parametrize(
    ("record", "environ", "is_job"),
    [
        ({"is_this_machine": False}, {}, True),
        ({"is_this_machine": True}, {"SLURM_JOB_ID": "7"}, False),
        ({}, {"SLURM_JOB_ID": "7"}, True),
        (None, {}, False),
    ],
)
def test_whether_it_may_be_queued_again_its_submission_tells_else_the_environment(
    record: dict[str, Any] | None,
    environ: dict[str, str],
    is_job: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hpc_llm.worker.keeping import _is_job

    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    paths = RunPaths(tmp_path)
    if record is not None:
        paths.job.write_text(json.dumps(record))
    assert _is_job(paths) is is_job


def test_it_goes_on_with_the_losses_of_a_run_that_was_never_interrupted(story: Story) -> None:
    rest, whole = losses(story.rest), losses(story.whole)
    assert list(rest) == list(range(story.stopped + 1, story.last + 1))
    assert list(rest.values()) == pytest.approx([whole[step] for step in rest], rel=1e-5)
    result = result_of(story.rest)
    assert (result["outcome"], result["resumed"]["step"]) == ("COMPLETED", story.stopped)
    assert result["measured_steps"] == 6 and result["step_times_s"] == result["step_times_s"][-6:]


def test_the_adapter_alone_is_kept_and_peft_gives_its_logits(story: Story) -> None:
    import torch
    from peft import PeftModel
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM

    from hpc_llm.worker.data import batches
    from hpc_llm.worker.ranks import Ranks

    folder = story.rest.model
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as file:
        names = list(file.keys())
    assert names and all(".lora_" in name and ".default" not in name for name in names)
    assert {path.name for path in folder.iterdir()} >= {"adapter_config.json", "adapter_model.safetensors", MANIFEST}
    assert is_whole_model(folder)
    assert not {"model.safetensors", "engine"} & {path.name for path in folder.iterdir()}
    plain = AutoModelForCausalLM.from_pretrained(story.base, dtype=torch.float32)
    model = PeftModel.from_pretrained(plain, str(folder))
    plan = story.plan(steps=story.last)
    drawn = [
        next(
            iter(
                batches(
                    plan,
                    plain.config.vocab_size,
                    Ranks(rank, 2, rank, 2, "", 0, ""),
                    torch.device("cpu"),
                    used=8 * story.last,
                )
            )
        )
        for rank in range(2)
    ]
    tokens = torch.cat([batch["input_ids"] for batch in drawn])
    with torch.no_grad():
        loss = float(model(input_ids=tokens, labels=tokens).loss)
    assert loss == pytest.approx(losses(story.whole)[story.last + 1], rel=1e-5)


def test_what_is_kept_can_be_read_by_whom_the_umask_lets(story: Story) -> None:
    mask = os.umask(0o022)
    os.umask(mask)
    for path in (story.rest.model, *story.rest.model.rglob("*"), *story.rest.checkpoints.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644) & ~mask, path


# --- whole or not there ----------------------------------------------------------------------------------------------


def test_killed_while_one_rank_still_writes_the_older_checkpoint_is_the_one(tmp_path: Path, copies: Path) -> None:
    run, plan = RunPaths(tmp_path / "run"), make_plan("z2", 2, precision="fp32", steps=8, save_every=2, keep=1)
    process = start_worker(run.root, plan, *TWO, str(HERE / "rank_1_is_slow.py"), **variables_for(copies))
    half = run.checkpoints / ".step-4.part" / "engine"
    until("rank 1 is late", (half / "rank 1 is here").exists)
    until("rank 0 has written", (half / "shard-0.json").exists)
    for pid in (process.pid, *told_in(run.root, 2)):
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=300)
    assert steps_kept(run) == [2]
    put_away(run)
    result = finish(run, plan, *TWO, *WORKER, HPC_LLM_TRY="2", **variables_for(copies))
    assert (result["outcome"], result["resumed"]["step"]) == ("COMPLETED", 2)
    assert list(losses(run)) == list(range(3, 9))
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-8"]


@pytest.fixture
def plan() -> Plan:
    return make_plan("ddp", engine="plain", precision="fp32", steps=6, save_every=2)


def test_a_full_disk_ends_the_run_and_loses_nothing(
    run_plan: RunPlan, tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpc_llm.worker.engines.shards import ShardWriter

    write = ShardWriter.write

    def full(self: ShardWriter, name: str, piece: Any, what: str, *values: Any) -> None:
        if ".step-4.part" in self._numbers.name and what == "exp_avg_sq":  # in the midst of the second one
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, name, piece, what, *values)

    monkeypatch.setattr(ShardWriter, "write", full)
    result, run = run_plan(plan), RunPaths(tmp_path / "run")
    folder = run.checkpoint(4)
    assert result["outcome"] == "FAILED"
    assert f"the folder {folder} cannot be written: no space left on device" in result["outcome_reason"]
    assert steps_kept(run) == [2] and list(losses(run)) == [1, 2, 3, 4]
    assert [path.name for path in run.checkpoints.glob(".*")] == []


def test_the_newest_stay_and_transformers_loads_the_model(run_plan: RunPlan, tmp_path: Path, plan: Plan) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    result, run = run_plan(plan.changed(steps=5)), RunPaths(tmp_path / "run")
    assert result["outcome"] == "COMPLETED" and steps_kept(run) == [4, 5] and is_whole_model(run.model)
    model = AutoModelForCausalLM.from_pretrained(run.model, dtype=torch.float32)
    put_away(run)
    again = run_plan(plan.changed(steps=6))
    assert again["resumed"] == {"step": 5, "checkpoint": str(run.checkpoint(5))} and list(losses(run)) == [6]
    assert again["kept"]["model"] == str(run.model) and steps_kept(run) == [5, 6]

    from hpc_llm.worker.data import batches
    from hpc_llm.worker.ranks import find_ranks

    tokens = next(iter(batches(plan, model.config.vocab_size, find_ranks({}), torch.device("cpu"), used=20)))[
        "input_ids"
    ]
    with torch.no_grad():
        assert float(model(input_ids=tokens, labels=tokens).loss) == pytest.approx(losses(run)[6], rel=1e-6)


def test_a_run_that_was_stopped_behind_its_last_step_only_keeps_the_model(
    run_plan: RunPlan, tmp_path: Path, plan: Plan
) -> None:
    run = RunPaths(tmp_path / "run")
    run_plan(plan)
    shutil.rmtree(run.model)
    put_away(run)
    result = run_plan(plan)
    assert (result["outcome"], result["loss_last"], result["tokens_per_second"]) == ("COMPLETED", None, None)
    assert (run.model / "config.json").is_file() and not losses(run)


@pytest.mark.parametrize(("steps", "measured"), [(7, 0), (10, 2), (11, 3)])
def test_who_asks_for_too_few_steps_behind_a_checkpoint_gets_no_measurement(
    run_plan: RunPlan, tmp_path: Path, plan: Plan, steps: int, measured: int
) -> None:
    run_plan(plan)
    run = RunPaths(tmp_path / "run")
    (tmp_path / "earlier").mkdir()
    shutil.move(run.checkpoints, RunPaths(tmp_path / "earlier").checkpoints)
    put_away(run)
    result = run_plan(
        plan.changed(steps=steps, resume=str(RunPaths(tmp_path / "earlier").checkpoint(6)), save_every=None)
    )
    said = None if measured >= 3 else f"{measured} steps were measured, at least 3 are needed"
    assert (result["resumed"]["step"], result["measured_steps"]) == (6, measured)
    assert (result["outcome"], result["invalid_reason"]) == ("INVALID" if said else "COMPLETED", said)


def test_what_a_queue_left_of_its_own_run_may_be_too_little_to_measure(
    run_plan: RunPlan, tmp_path: Path, plan: Plan
) -> None:
    run_plan(plan)
    put_away(RunPaths(tmp_path / "run"))
    result = run_plan(plan.changed(steps=7))
    assert (result["outcome"], result["resumed"]["step"], result["tokens_per_second"]) == ("COMPLETED", 6, None)


@pytest.fixture
def runs_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From the given step on the learning rate is so large that the next loss is no number."""
    from hpc_llm.worker import loop

    usual = loop.set_rate

    def from_step(first: int) -> None:
        def set_rate(engine: Any, plan: Plan, number: int) -> None:
            usual(engine, plan, number)
            for group in engine.param_groups:
                group["lr"] = 1e30 if number == first else group["lr"]

        monkeypatch.setattr(loop, "set_rate", set_rate)

    return from_step


@pytest.mark.parametrize(("keep", "kept"), [(1, [6, 11]), (2, [4, 11]), (3, [4, 10, 11])])
def test_what_is_kept_behind_a_loss_that_is_not_finite_takes_no_place_of_the_last_one_before(
    run_plan: RunPlan,
    tmp_path: Path,
    plan: Plan,
    runs_away: Callable[[int], None],
    keep: int,
    kept: list[int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    run, long = RunPaths(tmp_path / "run"), plan.changed(steps=11, keep=keep)
    runs_away(5)
    result, reason = run_plan(long), "the loss is not a finite number from step 7 on"
    assert (result["outcome"], result["invalid_reason"]) == ("INVALID", reason)
    assert steps_kept(run) == kept
    put_away(run)
    runs_away(0)
    result = run_plan(long.changed(steps=12))  # as a queue begins its job again
    assert result["invalid_reason"] == "the loss is not a finite number from step 12 on"
    assert (
        "the loss was not a finite number from step 7 on, and this checkpoint was kept behind that step"
        in capfd.readouterr().out
    )
    assert steps_kept(run) == [kept[0], *([11] if keep == 3 else []), 12]


@pytest.mark.parametrize("named", ["", "checkpoints/step-11"])
def test_a_run_is_gone_on_with_from_before_a_loss_that_is_not_finite(
    run_plan: RunPlan,
    tmp_path: Path,
    plan: Plan,
    runs_away: Callable[[int], None],
    named: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    runs_away(5)
    run, earlier = RunPaths(tmp_path / "run"), tmp_path / "earlier"
    run_plan(plan.changed(steps=11))
    shutil.move(run.root, earlier)
    write_json(RunPaths(earlier).experiment, {"schema": 1, "run_id": "earlier", "plan": plan.to_dict()})
    runs_away(0)
    capfd.readouterr()
    result = run_plan(plan.changed(steps=16, resume=str(earlier / named), save_every=None))
    is_told = "this checkpoint was kept behind that step" in capfd.readouterr().out
    reason = "the loss is not a finite number from step 12 on"
    assert (result["resumed"]["step"], result["invalid_reason"], is_told) == (
        (11, reason, True) if named else (4, None, False)
    )


def tried(run: RunPaths, ends: tuple[int, ...]) -> None:
    """Tries that came to these steps, each from wherever it began."""
    for number, end in enumerate(ends, 1):
        (run.tries / str(number)).mkdir(parents=True)
        lines = [json.dumps({"step": step}) for step in range(max(end - 2, 1), end + 1)]
        (run.tries / str(number) / "steps.jsonl").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("ends", "is_last"),
    [((), False), ((5,), False), ((0,), False), ((0, 0), True), ((5, 5), False), ((5, 5, 3), True), ((5, 0, 6), False), ((5, 0, 6, 6), False), ((9, 4, 9), True)],
)  # fmt: skip
def test_two_tries_without_a_new_step_are_the_last(tmp_path: Path, ends: tuple[int, ...], is_last: bool) -> None:
    from hpc_llm.worker.keeping import refuse_endless_tries

    run = RunPaths(tmp_path / "run")
    tried(run, ends)
    if not is_last:
        refuse_endless_tries(run)
        return
    with pytest.raises(WorkerError, match=f"the last 2 tries of this run made no new step behind step {max(ends)}"):
        refuse_endless_tries(run)


def test_a_run_that_gets_nowhere_ends_with_a_sentence(run_plan: RunPlan, tmp_path: Path, plan: Plan) -> None:
    run = RunPaths(tmp_path / "run")
    tried(run, (3, 3, 2))
    result = run_plan(plan)
    assert result["outcome"] == "FAILED" and not run.steps.exists()
    assert f"see what `hpc-llm diagnose run --logs {tmp_path}` says" in result["outcome_reason"]


def test_other_data_are_read_from_their_beginning(run_plan: RunPlan, tmp_path: Path, plan: Plan) -> None:
    run = RunPaths(tmp_path / "run")
    run_plan(plan.changed(steps=4))
    put_away(run)
    result = run_plan(plan.changed(seed=9))
    assert any(
        "was trained on other data: this one's is read from its beginning" in said for said in result["adaptations"]
    )


def test_nothing_is_kept_unless_it_is_asked_for(run_plan: RunPlan, tmp_path: Path, plan: Plan) -> None:
    result = run_plan(plan.changed(save_every=None))
    assert result["kept"] is None and result["resumed"] is None
    assert not {"checkpoints", "model"} & {path.name for path in (tmp_path / "run").iterdir()}
