"""Launchers from anywhere: each is one object, found by its name, and nothing else has to know of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rendering import planned, script
from standin import Machine
from test_planning import refused, variant

from hpc_llm.errors import PlanError, ProfileError
from hpc_llm.records.rank_variables import RankVariables
from hpc_llm.site import launchers
from hpc_llm.site.launchers import Launcher, Start, known, register, unregister
from hpc_llm.text.shell import shell_word

NUMBERED = RankVariables(rank=("ALPS_APP_PE",), world_size=("ALPS_APP_SIZE",), local_rank=("ALPS_APP_SLOT",))


@pytest.fixture
def aprun() -> Iterator[Launcher]:
    """One that no module of ours knows."""

    def command(start: Start) -> str:
        odd = shell_word("it's $x")
        return f'aprun -n {start.ranks} -N {start.ranks_per_node} {odd} "${{rank[@]}}"'

    register(made := Launcher(name="aprun", command=command, variables=NUMBERED, needs_slurm=True))
    yield made
    unregister(made.name)


def test_those_that_come_along_are_the_modules_of_the_folder() -> None:
    folder = Path(launchers.__file__).parents[1] / "job" / "launchers"
    assert set(known()) == {path.stem for path in folder.glob("[!_]*.py")} == {"mpirun", "python", "srun", "torchrun"}


def test_one_that_is_registered_can_be_planned_and_rendered(aprun: Launcher) -> None:
    site = variant("taiwania2", launch={"single_node": "aprun", "multi_node": "aprun", "allowed": ["aprun", "python"]})
    assert planned(site, "z3").plan.job.launcher == "aprun"
    text = script(site, "z3", nodes=2, gpus_per_node=4)
    assert "--ntasks-per-node=4\n" in text
    assert text.endswith("""launch aprun -n 8 -N 4 'it'"'"'s $x' "${rank[@]}"\n""")
    refused(PlanError, "launcher aprun needs Slurm, cluster taiwania2 runs on this machine", site, scheduler="local")
    said = "launcher python starts one rank, the plan has 8. Launchers for several: aprun."
    refused(PlanError, said, site, set=("launcher=python",))


@pytest.mark.parametrize("name", ["", "a b", "$(x)", "]x", "a\n", "-n", "é"])
def test_names_that_a_script_could_not_hold_are_refused(name: str) -> None:
    with pytest.raises(ProfileError, match="is no name of a launcher: use letters"):
        Launcher(name=name, command=lambda start: "", variables=None)
    with pytest.raises(ValueError, match="is not a name of an environment variable"):
        RankVariables(rank=(name or "a=b",), world_size=("B",), local_rank=("C",))
    with pytest.raises(ValueError, match="need a variable each"):
        RankVariables(rank=(), world_size=("B",), local_rank=("C",))


def test_its_ranks_are_told_its_variables(aprun: Launcher, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "a machine")
    (machine.folder / "bin" / "aprun").write_text('#!/bin/bash\nshift 5\nexec "$@"\n')
    (machine.folder / "bin" / "aprun").chmod(0o755)
    launch = {"launch__single_node": "aprun", "launch__allowed": ["aprun", "srun"]}
    cluster = machine.cluster(scheduler="slurm", **launch)
    ended = machine.run(machine.script(cluster, scheduler="slurm"))
    assert ended.code == 0 and ended.seen is not None, ended.stderr
    env = ended.seen["env"]
    assert (env["HPC_LLM_LAUNCHER"], RankVariables.of(env["HPC_LLM_RANK_VARIABLES"])) == ("aprun", NUMBERED)
