"""Each kind of mishap once, on the real Slurm: nothing is orphaned, doubled, lost or wrong, and no stranger is harmed.

benchmarks/chaos.py draws hundreds of them. Those that disturb others have clusters of their own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import chaos_records
import chaos_slurm
import chaos_strangers
import chaos_submit
import pytest
from chaos_site import ChaosSite
from chaos_trial import Trial
from scratch_slurm import ScratchSlurm

pytestmark = pytest.mark.slurm
Harms = list[tuple[str, str]]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A short path: that of a test is longer than some of Slurm's columns."""
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def chaos_site(folder: Path) -> ChaosSite:
    return ChaosSite(folder / "site")


@pytest.fixture(scope="module")
def own(folder: Path) -> Iterator[ScratchSlurm]:
    with ScratchSlurm(folder / "own", name="own", accounting=False, message_timeout_s=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def other(folder: Path) -> Iterator[ScratchSlurm]:
    with ScratchSlurm(folder / "other", name="other", accounting=False, message_timeout_s=1) as cluster:
        yield cluster


Play = Callable[..., Harms]


@pytest.fixture
def play(folder: Path, chaos_site: ChaosSite) -> Play:
    """Plays a scenario with a seed on a cluster; returns the harm that was done."""

    def played(scenario: Callable[..., None], seed: int, slurm: ScratchSlurm, *more: object) -> Harms:
        trial = Trial(slurm, chaos_site, folder / f"{scenario.__name__}-{seed}", seed)
        try:
            scenario(trial, *more)
        finally:
            trial.clean()
        return trial.harms

    return played


def test_a_submission_killed_at_any_moment_leaves_no_orphan_and_can_be_repeated(
    play: Play, slurm: ScratchSlurm
) -> None:
    assert play(chaos_submit.killed, 3, slurm) == []


def test_a_submission_killed_before_slurm_accepts_can_be_repeated(play: Play, slurm: ScratchSlurm) -> None:
    assert play(chaos_submit.killed_before_accepting, 0, slurm) == []


def test_a_submission_killed_after_slurm_accepted_is_adopted(play: Play, slurm: ScratchSlurm) -> None:
    assert play(chaos_submit.killed_after_accepting, 0, slurm) == []


def test_a_sweep_of_fifty_that_is_killed_is_adopted_whole_or_not_at_all(play: Play, slurm: ScratchSlurm) -> None:
    assert play(chaos_submit.sweep_killed, 0, slurm) == []


def test_a_job_whose_id_was_lost_is_found(play: Play, slurm: ScratchSlurm) -> None:
    assert play(chaos_submit.answer_lost, 3, slurm) == []


def test_a_submission_that_never_reached_slurm_can_be_repeated(play: Play, slurm: ScratchSlurm) -> None:
    assert play(chaos_submit.asked_in_vain, 0, slurm) == []


def test_who_repeats_a_killed_submission_at_once_gets_no_second_job(play: Play, slurm: ScratchSlurm) -> None:
    assert play(chaos_submit.tried_again_at_once, 0, slurm) == []


def test_many_commands_that_submit_the_same_run_make_one_job(play: Play, slurm: ScratchSlurm) -> None:
    assert play(chaos_submit.many_at_once, 0, slurm, 6) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_records_that_become_visible_late_still_count(play: Play, own: ScratchSlurm, seed: int) -> None:
    assert play(chaos_records.records_lag, seed, own) == []


def test_a_run_on_a_full_disk_can_be_looked_at_and_cancelled(play: Play, own: ScratchSlurm) -> None:
    assert play(chaos_records.disk_full, 0, own) == []


def test_a_submission_to_a_full_disk_leaves_no_orphan(play: Play, own: ScratchSlurm) -> None:
    assert play(chaos_records.disk_full_in_submit, 1, own) == []


def test_a_run_on_a_read_only_disk_can_be_looked_at_and_cancelled(play: Play, own: ScratchSlurm) -> None:
    assert play(chaos_records.disk_read_only, 0, own) == []


def test_a_run_whose_folder_is_gone_is_cancelled_by_its_job_id(play: Play, own: ScratchSlurm) -> None:
    assert play(chaos_records.folder_gone, 0, own) == []


def test_clocks_that_are_hours_apart_change_no_outcome(play: Play, slurm: ScratchSlurm) -> None:
    assert play(chaos_records.clock_wrong, 1, slurm) == []


def test_another_user_s_folder_among_the_runs_hides_none_of_them(play: Play, own: ScratchSlurm) -> None:
    assert play(chaos_records.foreign_folder, 0, own) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_a_stranger_s_job_that_has_a_run_s_id_comes_to_no_harm(play: Play, own: ScratchSlurm, seed: int) -> None:
    assert play(chaos_strangers.ids_used_again, seed, own) == []


def test_a_run_is_not_mistaken_for_a_job_of_another_cluster(play: Play, own: ScratchSlurm, other: ScratchSlurm) -> None:
    assert play(chaos_strangers.two_clusters, 0, own, other) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_a_controller_that_fails_during_a_submission_leaves_no_orphan(play: Play, own: ScratchSlurm, seed: int) -> None:
    assert play(chaos_slurm.controller_fails_in_submit, seed, own) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_a_controller_that_fails_ends_no_run(play: Play, own: ScratchSlurm, seed: int) -> None:
    assert play(chaos_slurm.controller_fails, seed, own) == []


def test_accounting_that_fails_changes_no_outcome(play: Play, slurm: ScratchSlurm) -> None:
    assert play(chaos_slurm.accounting_fails, 0, slurm) == []


def test_a_lost_node_ends_the_run_and_its_steps_are_kept(play: Play, own: ScratchSlurm) -> None:
    assert play(chaos_slurm.node_lost, 0, own) == []


def test_a_requeued_run_keeps_the_steps_of_its_first_try(play: Play, own: ScratchSlurm) -> None:
    assert play(chaos_slurm.requeued, 0, own) == []


def test_a_preempted_run_is_told_as_preempted(play: Play, own: ScratchSlurm) -> None:
    assert play(chaos_slurm.preempted, 0, own) == []


def test_a_run_that_is_preempted_and_queued_again_is_not_over(play: Play, own: ScratchSlurm) -> None:
    assert play(chaos_slurm.preempted_and_requeued, 0, own) == []
