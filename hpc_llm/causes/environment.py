"""The ground a job stands on: modules, conda, packages."""

from __future__ import annotations

import re

from hpc_llm.causes import libraries
from hpc_llm.causes.cause import STARTED, Cause, sign
from hpc_llm.causes.frames import is_no_helper
from hpc_llm.causes.own_environment import OF_OUR_JOBS
from hpc_llm.causes.symbols import UNLINKED

_NO_MODULE_SYSTEM = (
    "the shell of the job knows no `module`: begin the script with #!/bin/bash -l, or source the site's file before the first module command "
    "(/etc/profile.d/modules.sh, lmod.sh or z00_lmod.sh: `ls /etc/profile.d` on a login node)\n"
    "in a profile: prelude.init names that file"
)

MODULE_MISSING = Cause(
    id="module_missing",
    title="a module did not load",
    meaning=(
        "The module system is missing on the node, has no module of that name and version, or needs others loaded or unloaded first."
    ),
    remedy=(
        "see what there is: `module avail NAME`, `module spider NAME` on a login node\n"
        "then correct prelude.load in the cluster's profile (`hpc-llm clusters NAME`)"
    ),
    retry=False,
    precedence=84,
    explains=frozenset(
        (
            "package_missing",
            "gpu_missing",
            "driver_mismatch",
            "conda_not_initialised",
            "python_exception",
            "config_error",
        )
    ),
    signs=(
        sign(
            "following module(s) are unknown",
            r"module\(s\) are unknown:(?:[ \n]\"(?P<module>[^\"\n]{1,80})\")?",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "nable to locate a modulefile",
            r"[Uu]nable to locate a modulefile for '(?P<module>[^'\n]{1,80})'",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "exist but cannot be",
            r"These module\(s\)(?: or extension\(s\))? exist but cannot be(?:$| loaded as requested)[^\n]{0,80}",
            survived_after=STARTED,
            confidence=0.9,
            remedy="the module is there and wants others loaded before it: `module spider NAME/VERSION` lists them, and the message may do so, too",
        ),
        sign(
            ("command not found", ": not found", "execve(): ", "lmod/libexec/lmod"),
            r"\b(?:module|ml): command not found|: (?:module|ml): not found|execve\(\): (?:module|ml): No such file"
            r"|/lmod/libexec/lmod: No such file or directory",
            survived_after=STARTED,
            confidence=0.85,
            remedy=_NO_MODULE_SYSTEM,
        ),
        sign(
            "hpc-llm: ",
            r"^hpc-llm: (?:module (?P<module>\S{1,80}) failed to load|module folder \S+ does not exist|the module system is missing)",
            confidence=0.99,
        ),
        sign(
            (
                "conflicts with the currently loaded module",
                "cannot be loaded due to a conflict",
                "because these module(s) are loaded",
            ),
            r"module cannot be loaded due to a conflict|conflicts with the currently loaded module|because these module\(s\) are loaded",
            survived_after=STARTED,
            confidence=0.8,
            precedence=85,  # it says more than that Lmod has found an error
            remedy="a module that is loaded stands in its way: `module unload` the one that the message names first, or begin with `module purge`",
        ),
        sign("Lmod has detected the following error:", survived_after=STARTED, confidence=0.8),
        sign("Module ERROR", r"^[^\n]{0,40}Module ERROR: ", survived_after=STARTED, confidence=0.8),
        sign("hpc-llm: mpirun is not on PATH", confidence=0.97),
    ),
)

_MAKE_ENVIRONMENT = (
    "make the environment that the evidence names, or correct prelude.python.env in the cluster's profile\n"
    "see which there are on the compute node: `conda env list`\n"
    "`conda activate` is for conda 4.4 and later: before that it was `source activate`"
)

_NO_VENV = (
    "there is no virtual environment in {env} on that node: make it where the job sees it (python3 -m venv), and correct the path in the script\n"
    "what lies below /tmp or $TMPDIR is of one node alone, and often of one job"
)
_NO_CONDA = (
    "the shell of the job knows no conda: load the module that brings it (`module spider conda`), or source its hook by its own path before "
    "`conda activate`: source /PATH/TO/CONDA/etc/profile.d/conda.sh (on a login node `conda info --base` says the path)\n"
    "in a profile: prelude.python, of kind conda, with that file as hook"
)

CONDA = Cause(
    id="conda_not_initialised",
    title="the Python environment did not activate",
    meaning=(
        "The environment that was asked for is not there or was not activated, as where conda's shell hook is not sourced: "
        "a script that goes on all the same runs another Python."
    ),
    remedy=(
        "let the job source conda's hook: prelude.python {kind: conda, hook: auto, env: /path} in the cluster's profile\n"
        'in a script of your own: source "$(conda info --base)/etc/profile.d/conda.sh" before conda activate\n'
        "see that the environment exists on the compute node: `conda env list`"
    ),
    retry=False,
    precedence=83,
    explains=frozenset(("package_missing", "python_exception")),
    signs=(
        sign(
            "Run 'conda init'",
            r"CondaError: Run 'conda init' before 'conda (?P<command>\w+)'",
            survived_after=STARTED,
            confidence=0.85,
        ),
        sign(
            ("ould not find conda environment: ", "CondaEnvironmentNotFoundError", "invalid choice: 'activate'"),
            r"Could not find conda environment: |CondaEnvironmentNotFoundError|conda[\w.]*: error: [^\n]{0,40}invalid choice: 'activate'",
            survived_after=STARTED,
            confidence=0.9,
            remedy=_MAKE_ENVIRONMENT,
        ),
        sign("has not been properly configured to use 'conda activate'", survived_after=STARTED, confidence=0.9),
        sign(
            ("EnvironmentLocationNotFound", "EnvironmentNameNotFound"),
            r"(?:EnvironmentLocationNotFound|EnvironmentNameNotFound|NotWritableError): [^\n]{0,200}",
            survived_after=STARTED,
            confidence=0.9,
            remedy=_MAKE_ENVIRONMENT,
        ),
        *OF_OUR_JOBS,
        sign(
            "command not found",
            r"\bconda: command not found|: conda: not found",
            survived_after=STARTED,
            confidence=0.85,
            remedy=_NO_CONDA,
        ),
        sign(
            ("etc/profile.d/conda.sh", "bin/activate"),
            r"(?:etc/profile\.d/conda\.sh|(?:conda|forge)\w{0,12}/bin/activate): No such file or directory",
            survived_after=STARTED,
            confidence=0.85,
        ),
        sign(
            "/bin/activate: No such file",
            r"(?P<env>[^\s:'\"]{1,300}(?<!conda)(?<!conda\d)(?<!forge)(?<!forge\d))/bin/activate: No such file or directory",
            survived_after=STARTED,
            confidence=0.6,  # what the script does next is not known
            remedy=_NO_VENV,
        ),
        sign(
            "hell not initialized",
            r"'(?:micro)?mamba' is running as a subprocess|[Ss]hell not initialized",
            survived_after=STARTED,
            confidence=0.8,
        ),
    ),
)

_OF_A_PACKAGE = r"(?= \([^()\n]{0,300}(?:(?:site|dist)-packages|/python\d[\d.]*)/| \(unknown location\)|(?! \())"
"""Where a file is named it is an installed one: in a checkout of one's own the name is missing in the program, and no release has it."""

PACKAGE_MISSING = Cause(
    id="package_missing",
    title="a package or a library is missing",
    meaning=(
        "The Python that ran has no such package, or not in the version needed; it may be the wrong Python. Or a program does not find a library."
    ),
    remedy=(
        "install what the evidence names into the environment of the job: on PyPI it may have another name\n"
        "if it is there, the job runs another Python: see the environment in the first lines of the output"
    ),
    retry=False,
    precedence=78,
    explains=frozenset(("python_exception", "collective_timeout")),
    signs=(
        sign(
            "No module named",
            r"\bModuleNotFoundError: No module named '?(?P<package>\w+)(?:'|$)",
            survived_after=STARTED,
            where=is_no_helper,
        ),
        sign(
            "No module named",
            r"\bModuleNotFoundError: No module named '?(?P<package>\w+)\.[\w.]+(?:'|$)",
            survived_after=STARTED,
            where=is_no_helper,
            remedy=(
                "{package} is there without this module, or another package has its name: "
                "install the version that the program asks for\n"
                "if it is a folder of the program's own, start the program where that lies, or put the place on PYTHONPATH\n"
                "if the right one is there, the job runs another Python: see the environment in the first lines of the output"
            ),
        ),
        sign(  # as transformers repeats it below an error of its own
            "No module named",
            r"^No module named '(?P<package>[\w.]+)'$",
            survived_after=STARTED,
            confidence=0.85,
        ),
        sign(
            "No module named",
            r"^(?:\S{0,80}/)?python[\d.]*: (?:Error while finding module specification|No module named )'?(?P<package>[\w.]+)?",
        ),
        sign(
            ("ImportError: ",),
            r"^[^\n\"']{0,120}?\bImportError: (?!cannot import name)[^\n]{0,200}?(?:requires?|needs?|not installed|pip install|not been found|not found in your environment|could not be found|can ?not be used)[^\n]{0,40}",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(  # transformers ends the line before it
            "but it was not found in your environment",
            r"^[\w.]{1,80} requires the [\w. -]{1,60} library but it was not found in your environment",
            survived_after=STARTED,
            confidence=0.9,
        ),
        sign(
            "error while loading shared libraries: ",
            r"\berror while loading shared libraries: \S{1,200}: cannot open shared object file",
            survived_after=STARTED,
            confidence=0.9,
            remedy=(
                "the program in the evidence was built with a library that is not found there: load the modules, or activate the environment, with which "
                "it was built; `ldd PROGRAM` lists what it needs\n"
                "see LD_LIBRARY_PATH in the job, and that the library's folder lies on a disk that the compute node has"
            ),
        ),
        sign(
            "cannot import name",
            r"^[^\n\"']{0,120}?\bImportError: cannot import name '(?P<name>\w+)' from '(?P<package>[\w.]+)'"
            + _OF_A_PACKAGE,
            survived_after=STARTED,
            confidence=0.85,
            remedy=(
                "{package} and what imports {name} from it (the last frame before) are of releases that do not fit: see which release of the other "
                "each asks for, and change the one on which less depends"
            ),
        ),
        sign(
            "PackageNotFoundError",
            r"^[^\n\"']{0,120}?\bPackageNotFoundError: (?:No package metadata was found for )?(?P<package>[\w.-]+)",
            survived_after=STARTED,
        ),
        sign(
            "lacks ",
            r"^hpc-llm: (?:the Python environment lacks (?P<package>[\w, ]+)|python [\d.]+ is too old[^\n:]{0,40})"
            r"(?:: (?P<python>/[^\n]{1,400}?))?(?: \(on [\w.-]{1,255}\))?[ \t]*$",
            confidence=0.99,
        ),
        sign("hpc-llm: ", r"^hpc-llm: (?P<program>srun|torchrun) is not on PATH", confidence=0.9),
        sign(
            ("command not found", "execve(): "),
            r"line \d+: (?P<program>deepspeed|torchrun|accelerate): command not found"
            r"|execve\(\): (?P<program_2>deepspeed|torchrun|accelerate|python[\d.]*): No such file or directory",
            survived_after=STARTED,
            confidence=0.85,
        ),
        sign(
            "No such file or directory: 'numactl'",
            confidence=0.85,
            remedy="the launcher wants the program numactl: install it, or drop --bind_cores_to_rank",
        ),
        sign(
            (" has been toggled on, but it cannot be used", "package flash_attn seems to be not installed"),
            r"(?P<attention>Flash ?Attention[ -]?[234]?) has been toggled on, but it cannot be used|package (?P<attention_2>flash_attn) seems to be not installed",
        ),
        sign(
            "model needs a package that is missing",
            r"the plan's model needs a package that is missing here: [^\n]{1,160}",
        ),
        sign(
            ", which is missing here ",
            r"\bWorkerError: [^\n]{1,300} are read with the package (?P<package>\w{1,60}), which is missing here [^\n]{1,160}",
        ),
        sign(
            "Ninja is required to load C++ extensions",
            r"Ninja is required to load C\+\+ extensions(?= \(pip|\.?$)",
            remedy="put ninja on PATH: python -m pip install ninja, and run with the environment's bin folder on PATH",
        ),
        *libraries.OTHERS,
        *UNLINKED,
    ),
)

PROFILER = Cause(
    id="profiler_blocked",
    title="the profiler is missing or may not read the GPU's counters",
    meaning="The program that was to look at the run is not on the node, or the driver keeps the counters of its GPUs for administrators.",
    remedy=(
        "where it is missing: name the module that brings it in prelude.profilers of the cluster's profile\n"
        "where counters are locked only the site can open them: NVIDIA, the driver's option NVreg_RestrictProfilingToAdminUsers=0; "
        "AMD, the capability SYS_PERFMON\n"
        "nsys shows kernels over time without counters, and torch.profiler needs no program at all"
    ),
    retry=False,
    precedence=43,
    signs=(
        sign(
            "hpc-llm: the profiler ",
            r"^hpc-llm: the profiler (?P<program>\S{1,40}) is not on PATH",
            precedence=85,
            confidence=0.99,
        ),
        sign("ERR_NVGPUCTRPERM", r"ERR_NVGPUCTRPERM - The user does not have permission", confidence=0.7),
        sign(
            "SYS_PERFMON",
            r"could not be locked for profiling due to lack of permissions \(capability SYS_PERFMON\)",
            confidence=0.5,
            precedence=41,
        ),
    ),
)

_ONLY_ENDS = re.compile(
    rb"[^\S\n]*(?:(?=[^\n]{0,300}?(?:not found|\b127\b))[^\n]{0,620}|(?:srun|slurmstepd|hpc-llm)\S{0,80}: [^\n]{0,400}|[-=*#]{3}[^\n]{0,300}"
    rb"|[^\n]{0,80}\b[Jj]ob\b[^\n]{0,80}\b(?:finished|ended|end|done|complete|completed|exited)\b[^\n]{0,200})?(?:\n|\Z)"
)
"""A line that is printed when a job is over, or by the shell of what is missing as well."""
_MOST_BEHIND = 1 << 13


def _is_last_word(text: bytes, position: int) -> bool:
    """Whether nothing of a program follows: a script goes on after a command that is not there."""
    at = text.find(b"\n", position) + 1
    last = min(len(text), at + _MOST_BEHIND)
    while 0 < at < last:
        line = _ONLY_ENDS.match(text, at, last)
        if line is None:
            return False
        at = line.end()
    return True


_NAME = r"[A-Za-z][\w.+-]{0,60}"
_OPTION = r"(?:--?[A-Za-z][\w.-]{0,60}|[A-Za-z][\w.-]{0,60}(?==))"
_OPTION_REMEDY = (
    "{program} is an option, which the shell took for a command: the line of the script above it lacks its `\\` at the end, or has a blank or a comment "
    "behind it; the command before was run without that option and those below"
)

COMMAND_MISSING = Cause(
    id="command_missing",
    title="a command is missing",
    meaning="The shell found no program of that name on PATH, and nothing of the job is told behind it.",
    remedy="load the module, or activate the environment, that brings the command in the evidence, in the job itself and before that line",
    retry=False,
    precedence=43,  # where anything else failed, too, the script had gone on
    signs=(
        sign(
            ("command not found", ": not found"),
            rf"^[^\n\"']{{0,200}}?(?<![\w.+/-])(?P<program>{_NAME}): command not found$|^[^\n\"']{{1,200}}: \d{{1,6}}: (?P<program_2>{_NAME}): not found$"
            rf"|^[^\n\"']{{0,80}}\bcommand not found: (?P<program_3>{_NAME})$",
            survived_after=STARTED,
            where=_is_last_word,
            confidence=0.8,
        ),
        sign(
            ("command not found", ": not found"),
            rf"^[^\n\"']{{0,200}}?(?<![\w.+/=-])(?P<program>{_OPTION})(?:=[^\n\"']{{0,80}})?: command not found$"
            rf"|^[^\n\"']{{1,200}}: \d{{1,6}}: (?P<program_2>{_OPTION})(?:=[^\n\"']{{0,80}})?: not found$",
            survived_after=STARTED,
            where=_is_last_word,
            at_any_time=True,
            confidence=0.8,
            meaning="The shell took an option on a line of its own for a command: the one before it was run without that option.",
            remedy=_OPTION_REMEDY,
        ),
    ),
)

CAUSES = (MODULE_MISSING, CONDA, PACKAGE_MISSING, COMMAND_MISSING, PROFILER)
