"""All scenarios of the chaos trials: what each is called, how often it is drawn, and what it needs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import chaos_records
import chaos_slurm
import chaos_strangers
import chaos_submit
from chaos_trial import Trial
from scratch_slurm import ScratchSlurm


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of mishap."""

    play: Callable[[Trial], None] | Callable[[Trial, ScratchSlurm], None]
    share: float
    """How many of a hundred trials it gets, about."""
    disturbs: bool = False
    """It disturbs others on its cluster."""
    with_another: bool = False
    """It needs a second cluster."""
    any_accounting: bool = False
    """It must hold where a site keeps no accounting, too."""

    @property
    def name(self) -> str:
        return self.play.__name__


def _alone(share: float, play: Callable[[Trial], None]) -> Scenario:
    return Scenario(play=play, share=share, disturbs=True)


def _anywhere(share: float, play: Callable[[Trial], None]) -> Scenario:
    return Scenario(play=play, share=share, any_accounting=True)


SCENARIOS = (
    _anywhere(8, chaos_submit.killed),
    _anywhere(8, chaos_submit.killed_before_accepting),
    _anywhere(8, chaos_submit.killed_after_accepting),
    _anywhere(10, chaos_submit.sweep_killed),
    _anywhere(8, chaos_submit.answer_lost),
    _anywhere(3, chaos_submit.asked_in_vain),
    _anywhere(6, chaos_submit.tried_again_at_once),
    Scenario(play=chaos_submit.many_at_once, share=1),
    _anywhere(12, chaos_records.records_lag),
    Scenario(play=chaos_records.disk_full, share=2),
    Scenario(play=chaos_records.disk_full_in_submit, share=3),
    Scenario(play=chaos_records.disk_read_only, share=2),
    _anywhere(3, chaos_records.folder_gone),
    _anywhere(4, chaos_records.clock_wrong),
    Scenario(play=chaos_records.foreign_folder, share=2),
    _alone(5, chaos_strangers.ids_used_again),
    Scenario(play=chaos_strangers.two_clusters, share=5, disturbs=True, with_another=True),
    _alone(4, chaos_slurm.controller_fails_in_submit),
    _alone(3, chaos_slurm.controller_fails),
    _alone(2, chaos_slurm.accounting_fails),
    _alone(0.3, chaos_slurm.accounting_hangs),
    _alone(2, chaos_slurm.node_lost),
    _alone(2, chaos_slurm.requeued),
    _alone(2, chaos_slurm.preempted),
    _alone(2, chaos_slurm.preempted_and_requeued),
)


def play(scenario: Scenario, trial: Trial, other: ScratchSlurm | None = None) -> None:
    """Play one trial, and leave nothing behind; what went wrong is in its `harms`."""
    if scenario.any_accounting and random.Random(f"{scenario.name} {trial.folder.name}").random() < 0.25:
        trial.without_accounting()
    try:
        if scenario.with_another:
            assert other is not None
            scenario.play(trial, other)  # type: ignore[call-arg]
        else:
            scenario.play(trial)  # type: ignore[call-arg]
    finally:
        trial.clean()
