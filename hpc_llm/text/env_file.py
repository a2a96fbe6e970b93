"""The file of a user's own variables: NAME=VALUE lines, read and never run. Standard library only, imports nothing of ours.

    python -I -S env_file.py FILE

prints one `export` a variable for bash, or one sentence and exits 1; submission and the job read a file in this one way.
A line is empty, a comment from `#` on, or `NAME=VALUE` with or without `export` before it. VALUE is

- a bare word without blanks, quotes, backslashes, `$` and backquotes, and no `~/` at its beginning;
- text between single quotes, in which everything stands for itself;
- text between double quotes, in which a backslash takes its meaning from `"`, `\\`, `$` and a backquote, and these need it.

Quoted text may go over several lines. A comment may follow VALUE behind a blank. Nothing is expanded: what a shell would
expand is an error. The last of several lines with one name wins. Lines end as on Unix or on Windows.
"""

from __future__ import annotations

import re
import shlex
import sys

from hpc_llm.text.late_pattern import late_pattern

LARGEST_BYTES = 1 << 16
RESERVED = frozenset(
    """run_dir support functions code_archive code_digest start program rank task agent agent_of_node wrapper python try_files
    rank_variables ending_signals job_record job_tmp time_limit started_at oom_kills oom_kills_before kills_before stage reason signal saves child try limit code settings IFS
    BASHOPTS SHELLOPTS UID EUID PPID PS4 ENV PROMPT_COMMAND POSIXLY_CORRECT CDPATH GLOBIGNORE EXECIGNORE PYTHONSAFEPATH MASTER_ADDR MASTER_PORT
    HPC_LLM_LAUNCHER HPC_LLM_TRY SRUN_CPUS_PER_TASK RANDOM LINENO SECONDS FUNCNAME DIRSTACK GROUPS PIPESTATUS OPTIND
    this_job said asked asked_dir links others after conda_hook each_node folders init_file job left loaded_before moving name
    no_module node now number pair path path_variables pattern probe ran read_in_file record seconds text value why known
    answer began by count ended found place reach sentence try_dir what
    profiler profile_rank names waited words is_plain plain_code plain_set plain_shopt traced""".split()
)
"""Variables that the job script itself sets or lives by."""
_OF_THE_JOB = late_pattern(
    r"BASH\w*|stop_(?:no_\w+|module_failed|env_not_active|code_changed|cancelled)|HPC_LLM_(?!COMPILE_CPU_OPS$)\w*|SUBMITIT_\w*|SBATCH_\w*"
    r"|SLURM_(?:JOB|JOBID|ARRAY|STEP|STEPID|TASK|PROCID|LOCALID|NODEID|NODELIST|NNODES|NTASKS|NPROCS|RESTART|CLUSTER|SUBMIT|EXPORT"
    r"|TASKS|CONF|HET|LAUNCH|SRUN|WORKING)(?:_\w*)?|SRUN_EXPORT_ENV"
)
"""By what the job, or hpc-llm, knows which job, run or rank it is: another value would be somebody else's."""
_START = late_pattern(r"\A[ \t]*(?:(?:#[^\n]*)?(?:\n|\Z)|(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=)")
_VALUE = late_pattern(
    r"""\A(?: '(?P<single>[^']*)' | "(?P<double>(?:[^"\\$`]|\\["\\$`])*)" | (?P<bare>(?!~/)[^\s'"\\$`\#][^\s'"\\$`]*)? )
    [ \t]*(?:(?<=[ \t])\#[^\n]*)?(?:\n|\Z)""",
    re.VERBOSE,
)
_WRONG = (
    (late_pattern(r"\A'[^']*\Z"), "the single quote that begins there has no end"),
    (late_pattern(r'\A"(?:[^"\\]|\\.)*\Z', re.DOTALL), "the double quote that begins there has no end"),
    (late_pattern(r'\A"(?:[^"\\]|\\.)*"', re.DOTALL), 'between double quotes ", \\, $ and a backquote need a backslash before'
     " them, and nothing else has one; single quotes take everything as it is"),
    (late_pattern(r"\A(?:~/|[^\s'\"]*[$`\\])"), "nothing is expanded: put the value between single quotes, or write what is meant"),
)  # fmt: skip
_ESCAPED = late_pattern(r'\\(["\\$`])')


class EnvFileError(ValueError):
    """A line of the file cannot be read; the sentence names its number and nothing of what stands there."""


def is_reserved(name: str) -> bool:
    """Whether a variable belongs to the job script, or changes how its bash reads it.

    >>> is_reserved("run_dir"), is_reserved("SLURM_JOB_ID"), is_reserved("HPC_LLM_RUN_UUID"), is_reserved("NCCL_DEBUG")
    (True, True, True, False)
    """
    return name in RESERVED or _OF_THE_JOB.fullmatch(name) is not None


def parse(text: str) -> dict[str, str]:
    """The variables of a file's text. Raises EnvFileError.

    >>> parse("export A='two words' # mine\\nB=x#y\\n")
    {'A': 'two words', 'B': 'x#y'}
    """
    rest, number = text.removeprefix("\ufeff").replace("\r\n", "\n"), 1
    found: dict[str, str] = {}
    while rest:
        start = _START.match(rest)
        if start is None:
            raise EnvFileError(
                f"line {number} is no NAME=VALUE, whose name is of letters, digits and _ and begins with no digit; a value of several words needs quotes around it"
            )
        read = start.end()
        if start["name"] is not None:
            if is_reserved(start["name"]):
                raise EnvFileError(f"line {number} sets {start['name']}, which is the job script's own")
            found[start["name"]], length = _value(rest[read:], number)
            read += length
        number += rest.count("\n", 0, read)
        rest = rest[read:]
    return found


def _value(text: str, number: int) -> tuple[str, int]:
    """The value at the beginning of a text, and how much of the text it takes with the rest of its line."""
    value = _VALUE.match(text)
    if value is None:
        said = (sentence for pattern, sentence in _WRONG if pattern.match(text))
        said_else = "a value with blanks or quotes in it needs quotes around all of it"
        raise EnvFileError(f"line {number}: {next(said, said_else)}")
    return _meant(value), value.end()


def _meant(value: re.Match[str]) -> str:
    if value["double"] is not None:
        return _ESCAPED.sub(r"\1", value["double"])
    return value["single"] or value["bare"] or ""


def read(path: str) -> dict[str, str]:
    """The variables of a file. Raises EnvFileError, or OSError where it cannot be read."""
    with open(path, "rb") as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise EnvFileError(f"it has more than {LARGEST_BYTES >> 10} KiB")
    if b"\0" in content:
        raise EnvFileError("it holds a NUL character, which no variable can")
    return parse(content.decode("utf-8", "surrogateescape"))


def main(path: str) -> int:
    """Print the variables for bash, or what is wrong with the file."""
    try:
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in read(path).items()]
    except EnvFileError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write("".join(lines).encode("utf-8", "surrogateescape"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
