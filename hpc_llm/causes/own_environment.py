"""What a job of ours says of the Python environment that the profile names."""

from __future__ import annotations

from hpc_llm.causes.cause import Sign, sign

_MAKE_VENV = (
    "see whether the compute node sees {env}/bin/activate: it may lie on a disk that the node has not\n"
    "if it is nowhere, make it and install what the job needs: python3 -m venv {env}\n"
    "if it lies elsewhere, correct prelude.python.env in the cluster's profile"
)
_NO_VALUE = (
    "a path of the cluster's profile names ${name}, which had no value in the job: correct the name there\n"
    "or set it where the job has it too: in the files that a login shell reads on the node, or by a module that the profile loads"
)
_MOVED_VENV = (
    "{env}/bin/activate is another folder's, as where a virtual environment was moved or copied: make it anew with python3 -m venv {env}\n"
    "or correct prelude.python.env in the cluster's profile"
)
_NO_PYTHON = (
    "see that the environment, or the module, that the job loads has bin/python\n"
    "or correct prelude.python, or prelude.load, in the cluster's profile"
)


def _of_venv(rest: str, remedy: str) -> Sign:
    """What a job of ours says of its virtual environment."""
    pattern = rf"^hpc-llm: virtual environment (?P<env>[^\n]{{1,400}}?) {rest}"
    return sign("hpc-llm: virtual environment ", pattern, confidence=0.99, remedy=remedy)


OF_OUR_JOBS = (
    sign(
        "hpc-llm: ",
        r"^hpc-llm: (?:conda|virtual environment) [^\n]{1,4000}?, and the variable (?P<name>\w+) in the paths of the profile is not set",
        confidence=0.99,
        remedy=_NO_VALUE,
    ),
    sign(
        "hpc-llm: ",
        r"^hpc-llm: (?:conda is not on PATH|'conda info --base' failed|conda's shell hook|conda environment )",
        confidence=0.99,
    ),
    _of_venv("does not exist(?!, and the variable )", _MAKE_VENV),
    _of_venv("is not active", _MOVED_VENV),
    sign("hpc-llm: python is not on PATH", confidence=0.99, remedy=_NO_PYTHON),
)
