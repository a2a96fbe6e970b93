"""Packages that belong to a release of another one, and say themselves that theirs is not there."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, sign

_OF_TORCH = (
    "this {package} is not of the release, or the CUDA, of the torch that is there: install both again in one command and from one index, "
    "python -m pip install --upgrade torch {package} --index-url https://download.pytorch.org/whl/cuXYZ (`pip list` shows both), or both with conda\n"
    "with a torch that a container or a module brings, take the {package} that comes with it, and none of your own in ~/.local"
)
_WANTED = "(?P<wanted>[\\w.\\[\\]-]{1,80}(?:[<>=!~]=?[\\w.*<>=!~, ]{1,80})?)"

SIGNS = (
    sign(
        "were compiled with different CUDA",
        r"\bDetected that PyTorch and (?P<package>\w{1,40}) were compiled with different CUDA",
        survived_after=STARTED,
        remedy=_OF_TORCH,
    ),
    sign(
        ("operator torch", "Could not run 'torch"),
        r"(?:Error: |^)operator (?P<package>torch(?:vision|audio|ao|rl|text))::\w{1,80} does not exist"
        r"|Error: Could not run '(?P<package_2>torch(?:vision|audio))::\w{1,80}' with arguments from the 'CUDA' backend",
        survived_after=STARTED,
        remedy=_OF_TORCH,
    ),
    sign(
        " is required for a normal functioning of this module, but found ",
        rf"\b(?:Import|PackageNotFound)Error: {_WANTED} is required for a normal functioning of this module, but found (?P<found>[\w.-]{{1,60}}==[\w.+]{{0,40}}\w)",
        survived_after=STARTED,
        precedence=79,
        meaning="The package is there, in a release that another one does not take.",
        remedy=(
            "{found} is there, and {wanted} is asked for: python -m pip install '{wanted}' in the job's environment, or a release of what asks for it "
            "(the last frames of the traceback) that takes the one that is there"
        ),
    ),
)
