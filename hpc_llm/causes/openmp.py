"""Two runtimes of OpenMP in one process, of which the second one ends it."""

from __future__ import annotations

from hpc_llm.causes.cause import STARTED, sign

_ABOVE_A_CRASH = 71
"""Precedence: it aborts for this, or crashes a little later where it was told to go on."""

SIGNS = (
    sign(
        "OMP: Error #15",
        r"OMP: Error #15: Initializing (?P<library>\S{1,200}), but found (?P<found>\S{1,200}) already initialized",
        survived_after=STARTED,
        precedence=_ABOVE_A_CRASH,
        meaning="Two OpenMP runtimes were loaded into one process: packages that were built with different ones, or that bring one each.",
        remedy=(
            "one OpenMP runtime in the environment: take torch, NumPy, SciPy, MKL and the like from one source, all of conda or all of pip, in an "
            "environment made anew; load no compiler or MKL module that brings its own beside them\n"
            "see which there are: `find $CONDA_PREFIX $VIRTUAL_ENV -name 'lib*omp*.so*'`, and LD_PRELOAD and LD_LIBRARY_PATH in the job\n"
            "KMP_DUPLICATE_LIB_OK=TRUE only to look at it: with two runtimes results may be wrong, and it may crash later"
        ),
    ),
)
