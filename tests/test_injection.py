"""Whatever a user or a profile writes is refused or reaches the program, variables alone expanded; nothing of it is ever executed.

The scripts are run by a real bash on a machine of stand-ins. The canary is a file that any executed value would make.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from standin import Machine

from hpc_llm.errors import HpcLlmError, RequestError
from hpc_llm.planning.method import load_method
from hpc_llm.text.shell import sbatch_word, shell_expand, shell_word

CANARY = os.path.join(tempfile.gettempdir(), f"hpc-llm-canary-{os.getpid()}")
TRAPS = [
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"; touch {CANARY};",
    f"'; touch {CANARY} #",
    f'"; touch {CANARY} #',
    f"\ntouch {CANARY}\n",
    f"\n#SBATCH --wrap='touch {CANARY}'\n",
    f"& touch {CANARY} &",
    f"| touch {CANARY}",
    f"> {CANARY}",
    f"${{x:=$(touch {CANARY})}}",
    f"$[$(touch {CANARY})]",
    f"<(touch {CANARY})",
    f"a[$(touch {CANARY})]",
    "$'\\n'",
    "${IFS}",
    "$HOME",
    "~/x",
    "%j %a %%",
    "{{ plan }} {% raw %}",
    "\\",
    "\\'",
    "'",
    '"',
    "*",
    "!!",
    "-rf",
    "--help",
    "\x1c\x1d\x1e\x1f",
    "\x7f\x1b[31m",
    "tab\there",
    " both ends ",
    "é 漢 \u2028 \x85 🙂",
]
words = st.one_of(
    st.sampled_from(TRAPS),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.lists(st.sampled_from([*TRAPS, "a", " ", "=", "/", "."]), max_size=4).map("".join),
)
few = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture(autouse=True)
def _nothing_is_executed() -> Iterator[None]:
    Path(CANARY).unlink(missing_ok=True)
    yield
    assert not Path(CANARY).exists(), "a value was executed"


def untouched(text: str) -> None:
    """At once, so that hypothesis sees which example it was."""
    assert not Path(CANARY).exists(), f"{text!r} was executed"


def expanded(text: str) -> str:
    """What a variable's value means, in a profile or a request: ${NAME}, $NAME and a leading ~/ stand for the machine's variables."""
    text = "${HOME}" + text[1:] if text.startswith("~/") else text
    return re.sub(
        r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", lambda m: VARIABLES.get(m[1] or m[2], ""), text, flags=re.ASCII
    )


VARIABLES = {"HOME": "", "IFS": " \t\n"}


def reached(machine: Machine, text: str, run: Path | None = None) -> dict[str, Any]:
    """What the program saw of a script that must run to its end."""
    folder = run or machine.logs / "run-1"
    (folder / "seen.json").unlink(missing_ok=True)
    ended = machine.run(text, folder)
    assert ended.code == 0, ended.stderr
    assert ended.seen is not None
    return ended.seen


# --- what a user writes ---------------------------------------------------------------------------------------------


many = st.lists(words, min_size=10, max_size=40)


@few
@given(values=many)
@example(values=["a\n   \nb", "", " ", "\n", "\\\n"])
@example(values=["${HOME}/data", "/work/$HOME/hf", "~/x", "a~/x", "${HOME}:$UNSET_ONE:b c", "$(id)", "$5", "\\$HOME"])
def test_variables_of_the_request_arrive_as_those_of_a_profile_do(machine: Machine, values: list[str]) -> None:
    VARIABLES["HOME"] = machine.environ["HOME"]
    seen = reached(machine, machine.script(set=tuple(f"env.V{i}={value}" for i, value in enumerate(values))))
    assert [seen["env"][f"V{i}"] for i in range(len(values))] == list(map(expanded, values))
    untouched(str(values))


def test_all_traps_at_once_arrive(machine: Machine) -> None:
    VARIABLES["HOME"] = machine.environ["HOME"]
    seen = reached(machine, machine.script(set=tuple(f"env.T{i}={trap}" for i, trap in enumerate(TRAPS))))
    assert [seen["env"][f"T{i}"] for i in range(len(TRAPS))] == list(map(expanded, TRAPS))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=words)
def test_names_of_variables_are_names_or_refused(machine: Machine, name: str) -> None:
    try:
        text = machine.script(set=(f"env.{name}=x",))
    except RequestError:
        return
    name = name.partition("=")[0].strip()
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and f"export {name}=" in text


@few
@given(text=words, model=words)
def test_job_names_and_models_touch_nothing(machine: Machine, text: str, model: str) -> None:
    try:
        script = machine.script(name=text, model=f"/models/{model}", set=("weights=checkpoint",))
    except HpcLlmError as error:
        assert error.exit_code == 2
        return
    assert reached(machine, script)["argv"][-2:] == ["--run-dir", str(machine.logs / "run-1")]
    untouched(text + model)


@few
@given(part=words.filter(lambda t: not {"/", ":"} & set(t) and t not in ("", ".", "..") and len(t.encode()) < 100))
@example(part="with ' and \" and $(x)")
@example(part="new\nline")
@example(part="ends with newline\n")
def test_folders_of_any_name_work(machine: Machine, part: str) -> None:
    logs = machine.folder / "many" / part
    script = machine.script(logs=logs)
    seen = reached(machine, script, logs / "run-1")
    assert seen["argv"][-1] == str(logs / "run-1")
    untouched(part)


names = words.map(lambda text: re.sub(r"[\s,<>]", "", text))
"""What may be an account's or a partition's name."""


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=words,
    account=names,
    partition=names,
    key=st.sampled_from(["comment", "qos", "mail-user"]),
    value=words,
)
def test_sbatch_lines_hold_one_value_each_or_the_request_is_refused(
    machine: Machine, name: str, account: str, partition: str, key: str, value: str
) -> None:
    asked: dict[str, Any] = {"name": name, "account": account, "partition": partition, "sbatch": (f"{key}={value}",)}
    try:
        script = machine.script(machine.cluster(scheduler="slurm"), scheduler="slurm", **asked)
    except HpcLlmError as error:
        assert error.exit_code == 2
        return
    lines = script.split("\n")
    sbatch = [line for line in lines if line.lstrip().startswith("#SBATCH")]
    assert sbatch == lines[1 : 1 + len(sbatch)]
    found = {}
    for line in sbatch:
        flag, _, quoted = line.removeprefix("#SBATCH --").partition("=")
        assert flag not in found
        found[flag] = read_as_sbatch(quoted)
    assert (found["job-name"], found["account"], found["partition"]) == (name, account, partition)
    assert found[key] == value


def read_as_sbatch(text: str) -> str:
    """One argument as Slurm's own parser reads it: quotes of both kinds, and a backslash that escapes in all places."""
    result, quote, i = "", "", 0
    while i < len(text):
        c = text[i]
        if c == "\\":
            i += 1
            result += text[i]
        elif quote:
            quote, result = ("", result) if c == quote else (quote, result + c)
        elif c in "'\"":
            quote = c
        else:
            assert not c.isspace() or ord(c) > 127, f"{text!r} is more than one argument"
            result += c
        i += 1
    assert not quote, f"{text!r} has an unmatched quote"
    return result


@settings(max_examples=300)
@given(value=words)
def test_words_for_sbatch_are_read_back(value: str) -> None:
    try:
        assert read_as_sbatch(sbatch_word(value)) == value
    except RequestError:
        assert any(ord(c) < 32 or ord(c) == 127 for c in value)


@settings(max_examples=300)
@given(name=words)
def test_names_of_methods_and_clusters_open_no_other_file(name: str) -> None:
    try:
        method = load_method(name)
    except HpcLlmError as error:
        assert error.exit_code == 2
        return
    assert re.fullmatch(r"[a-z0-9+_-]+", method.name)


# --- what a profile holds -------------------------------------------------------------------------------------------


@few
@given(values=many)
def test_variables_of_a_profile_expand_variables_and_nothing_else(machine: Machine, values: list[str]) -> None:
    VARIABLES["HOME"] = machine.environ["HOME"]
    names = {f"SITE{i}": value for i, value in enumerate(values)}
    seen = reached(machine, machine.script(machine.cluster(env__common=names)))
    for name, value in names.items():
        assert seen["env"][name] == expanded(value)
    untouched(str(values))


@few
@given(modules=st.lists(words.filter(lambda m: not m.startswith(("missing", "silent"))), min_size=1, max_size=15))
def test_modules_of_any_name_are_one_argument(machine: Machine, modules: list[str]) -> None:
    machine.log.unlink(missing_ok=True)
    plain = machine.cluster()  # a profile holds no module with a blank in its name
    cluster = plain.model_copy(update={"prelude": plain.prelude.model_copy(update={"load": ["conda", *modules]})})
    ended = machine.run(machine.script(cluster))
    assert ended.code == 0, ended.stderr
    assert "".join(f"module load {module}\n" for module in modules) in machine.log.read_bytes().decode()
    untouched(str(modules))


@few
@given(
    part=words.filter(
        lambda t: "/" not in t and t not in ("", ".", "..") and not {"$", ":"} & set(t) and len(t.encode()) < 100
    )
)
def test_environments_and_init_files_of_any_name_are_found(machine: Machine, part: str) -> None:
    folder = machine.folder / "envs of any name" / part
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in (("env", machine.env_dir), ("modules.sh", machine.folder / "init" / "modules.sh")):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(target)
    changes: dict[str, Any] = {"prelude__init": [str(folder / "modules.sh")], "prelude__use": [str(folder)]}
    changes |= {"prelude__python": {"kind": "conda", "env": str(folder / "env")}}
    seen = reached(machine, machine.script(machine.cluster(**changes)))
    assert seen["env"]["CONDA_PREFIX"] == str(folder / "env")
    untouched(part)


@few
@given(arguments=st.lists(words, max_size=10), title=words)
def test_arguments_of_launchers_are_one_word_each(machine: Machine, arguments: list[str], title: str) -> None:
    machine.log.unlink(missing_ok=True)
    arguments = [f"--x={argument}" for argument in arguments]
    ended = machine.run(machine.script(machine.cluster(launch__mpirun_args=arguments, title=title)))
    assert ended.code == 0, ended.stderr
    called = " ".join(["mpirun", "-np", "2", *arguments, str(machine.env_dir)])
    assert called in machine.log.read_bytes().decode()
    untouched(str(arguments))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.sampled_from(["env__unset", "env__per_job_dirs", "env__common", "env__local"]), name=words)
def test_names_in_a_profile_are_names_or_refused(machine: Machine, place: str, name: str) -> None:
    value: Any = [name] if place == "env__unset" else {name: "x"}
    try:
        machine.cluster(**{place: value})
    except RequestError as error:
        assert "site.yaml: " in str(error)
        return
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)


# --- the quoting itself, thousands of times ---------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(values=st.lists(words, min_size=50, max_size=120))
def test_bash_reads_back_what_was_quoted(values: list[str]) -> None:
    import subprocess

    program = "printf '%s\\0' " + " ".join(shell_word(value) for value in values)
    assert "\n" not in program
    done = subprocess.run(["bash", "-c", program], capture_output=True, check=True)
    assert done.stdout == b"".join(value.encode() + b"\0" for value in values)
    untouched(program)


@settings(max_examples=20, deadline=None)
@given(values=st.lists(words, min_size=50, max_size=120))
def test_bash_expands_variables_and_nothing_else(values: list[str]) -> None:
    import subprocess

    program = "printf '%s\\0' " + " ".join(shell_expand(value) for value in values)
    environ = {"PATH": os.environ["PATH"], "HOME": "/home/a b/*"}
    done = subprocess.run(["bash", "-c", program], capture_output=True, check=True, env=environ)
    VARIABLES["HOME"] = environ["HOME"]
    meant = ["${HOME}" + value[1:] if value.startswith("~/") else value for value in values]
    found = done.stdout.decode().split("\0")[:-1]
    known = {"HOME", "IFS"}
    for value, result in zip(meant, found, strict=True):
        names = {a or b for a, b in re.findall(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", value, flags=re.ASCII)}
        if names <= known:
            assert result == expanded(value)
    untouched(program)
