"""Open MPI that did not start, in the words of its help texts."""

from __future__ import annotations

from typing import Any

import pytest

BOX = "-" * 74 + "\n"
HEAD = (
    "It looks like {} failed for some reason; your parallel process is\nlikely to abort.  There are many reasons that a parallel process can\n"
    "fail during {}; some of which are due to configuration or environment\nproblems.\n\n  {}\n  --> Returned \"Not found\" (-13) instead of \"Success\" (0)\n"
)  # fmt: skip
FATAL = (
    "[node01:12345] *** An error occurred in MPI_Init\n[node01:12345] *** on a NULL communicator\n"
    "[node01:12345] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n"
)
UNREACHABLE = "At least one pair of MPI processes are unable to reach each other for MPI communications.\n"


@pytest.mark.parametrize(
    "text",
    [
        BOX + HEAD.format("MPI_INIT", "MPI_INIT", "PML add procs failed") + BOX + FATAL,
        BOX + UNREACHABLE + BOX + FATAL,
        "MPI_INIT has failed because at least one MPI process is unreachable\nfrom another.\n" + FATAL,
        "No components were able to be opened in the pml framework.\n",
        "[cn557:1724353] PML ucx cannot be selected\n" + FATAL,
    ],
)
def test_no_network_between_the_processes_is_the_fabrics(text: str, diagnose: Any) -> None:
    found = diagnose(text + "srun: error: node01: task 0: Exited with exit code 1\n")
    assert (found.cause.id, found.retry) == ("fabric", False)
    assert found.confidence > 0.8 and "ucx_info -d" in found.remedy and "OMPI_MCA_pml=ob1" in found.remedy
    assert "Slingshot" not in found.meaning


@pytest.mark.parametrize(
    "text",
    [
        FATAL,
        FATAL.replace("[node01:12345] ", "").replace("MPI_Init", "MPI_Init_thread"),
        BOX + HEAD.format("MPI runtime init", "RTE init", "node rank") + BOX,
        BOX + HEAD.format("orte_init", "orte_init", "orte_ess_init failed") + BOX + FATAL,
        BOX + HEAD.format("opal_init", "opal_init", "opal_shmem_base_select failed") + BOX,
    ],
)
def test_a_start_that_failed_is_the_launchs(text: str, diagnose: Any) -> None:
    found = diagnose(text)
    assert (found.cause.id, found.retry) == ("launch_failed", False)
    assert "srun --mpi=list" in found.remedy and "MPI_Init" in found.meaning


def test_an_error_in_another_call_of_mpi_is_the_last_word(diagnose: Any) -> None:
    text = (
        "[n1:77] *** An error occurred in MPI_Send\n[n1:77] *** reported by process [1,0]\n[n1:77] *** on communicator MPI_COMM_WORLD\n"
        "[n1:77] *** MPI_ERR_RANK: invalid rank\n[n1:77] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n"
    )
    found = diagnose(text)
    assert found.cause.id == "unknown" and "MPI_ERR_RANK: invalid rank" in found.meaning


def test_what_named_the_reason_stays_the_cause(diagnose: Any) -> None:
    no_pmi = 'The application appears to have been direct launched using "srun",\nbut OMPI was not built with SLURM\'s PMI support and therefore cannot\nexecute.\n'
    assert diagnose(no_pmi + FATAL).remedy.startswith("the launcher and the MPI library do not belong together")
    gtl = "MPIDI_CRAY_init: GPU_SUPPORT_ENABLED is requested, but GTL library is not linked\n"
    assert "GPU" in diagnose(gtl + FATAL).remedy


@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec", "prterun", "mpirun.real"])
def test_a_launcher_that_refuses_root_says_so(launcher: str, diagnose: Any) -> None:
    said = f"{launcher} has detected an attempt to run as root."
    found = diagnose(f"{BOX}{said}\n\nYou can override this protection by adding the --allow-run-as-root option\n{BOX}")
    assert (found.cause.id, found.evidence[0].text, found.retry) == ("launch_failed", said, False)
    assert "not root" in found.remedy and "export OMPI_ALLOW_RUN_AS_ROOT=1 and export" in found.remedy
