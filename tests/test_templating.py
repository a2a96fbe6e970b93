"""Templates: a stranger's are not looked for, and one that is named can print and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import jinja2.meta
import pytest
from checkout import ROOT

import hpc_llm
from hpc_llm.api.batches import Places, batches
from hpc_llm.api.request import read_request
from hpc_llm.errors import RequestError
from hpc_llm.job import templating

LOCAL = ("--cluster", "local", "--method", "z3", "--model", "tiny")


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def mine(own_folder: Path) -> Path:
    """A folder for templates beside the working directory."""
    folder = own_folder.parent / "mine"
    folder.mkdir()
    return folder


def cli(*arguments: str | Path, **environ: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "hpc_llm", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
        timeout=240,
    )
    assert "Traceback" not in done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def refused(mine: Path, text: str, name: str = "launch.sh.j2") -> str:
    """The one sentence that a template with this text costs."""
    (mine / name).write_text(text)
    done = cli("render", *LOCAL, "--templates", mine)
    assert (done.code, done.out) == (2, ""), done
    [sentence] = [line for line in done.err.splitlines() if not line.startswith("hpc-llm: the script is made with")]
    return sentence


def test_templates_of_the_working_directory_are_used_only_where_they_are_named(own_folder: Path) -> None:
    folder = own_folder / "templates"
    shutil.copytree(ROOT / "templates", folder)
    with (folder / "launch.sh.j2").open("a") as file:
        file.write("# a line of mine {{ plan.workload.steps }}\n")
    silent = cli("render", *LOCAL)
    assert silent.code == 0 and "a line of mine" not in silent.out
    assert f"{folder} is not used: --templates templates takes job.sh.j2, prelude.sh.j2, launch.sh.j2" in silent.err
    named = cli("render", *LOCAL, "--templates", "templates", "--json")
    assert named.code == 0 and json.loads(named.out)["script"].endswith("# a line of mine 30\n")
    assert "the script is made with templates/job.sh.j2" in named.err
    assert (
        json.loads(cli("render", *LOCAL, "--json").out)["script"] + "# a line of mine 30\n"
        == json.loads(named.out)["script"]
    )


def test_an_experiment_file_brings_no_templates(own_folder: Path) -> None:
    (own_folder / "e.yaml").write_text("cluster: local\nmethod: z3\ntemplates: templates\n")
    done = cli("render", "e.yaml")
    assert done.code == 2 and "templates are named by --templates on the command line, not in a file" in done.err


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere", "is no folder"), ("empty", "holds no template: it may hold job.sh")]
)
def test_a_folder_without_templates_is_refused(own_folder: Path, name: str, said: str) -> None:
    (own_folder / "empty").mkdir()
    done = cli("render", *LOCAL, "--templates", name)
    assert done.code == 2 and said in done.err


def test_what_a_template_knows_is_written_down(mine: Path) -> None:
    said = (ROOT / "CONTRIBUTING.md").read_text()
    table = said[said.index("| a template knows |") :].partition("\n\n")[0]
    documented = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    sources = [path.read_text() for path in (ROOT / "templates").glob("*.j2")]
    environment = jinja2.Environment()
    environment.filters.update(dict.fromkeys(("q", "expand", "comment", "worker"), str))
    used = jinja2.meta.find_undeclared_variables(environment.parse("\n".join(sources))) - {"from"}
    assert documented == used
    (mine / "launch.sh.j2").write_text("".join(f"{{% set x = {name} %}}" for name in documented))
    assert cli("render", *LOCAL, "--templates", mine).code == 0


HARMFUL = [
    "{{ cycler.__init__.__globals__.os.system('touch /tmp/ran') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ plan['__class__'] }}",
    "{{ cluster.parse_raw(b'', proto='pickle', allow_pickle=True) }}",
    "{{ cluster.model_config }}",
    "{{ lipsum.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ (plan | attr('__class__')) }}",
    "{{ '{0.__class__}'.format(plan) }}",
    "{{ plan.update({'steps': 1}) }}",
    "{{ plan.workload.data.append('x') }}",
    "{{ origins.clear() }}",
    "{{ ''.join.__self__ }}",
    "{% for x in [1] | map(attribute='__class__') %}{{ x }}{% endfor %}",
    "{% include '/etc/passwd' %}",
    "{% include '../../etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ open('/etc/passwd') }}",
]


@pytest.mark.parametrize("text", HARMFUL)
def test_a_template_reaches_nothing_but_its_data(mine: Path, text: str) -> None:
    sentence = refused(mine, f"# one\n# two\n{text}\n")
    assert f"{mine}/launch.sh.j2, line 3: " in sentence


ENDLESS = [
    "{% for i in range(10**9) %}x{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}xxxxxxxx{% endfor %}{% endfor %}",
    "{{ 'x' * 10**10 }}",
    "{{ 9 ** (9 ** 9) }}",
    "{{ '%10000000000s' % 1 }}",
    "{{ 'x' | center(10**10) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% include 'launch.sh.j2' %}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
]


def test_a_busy_machine_ends_no_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process may wait for a processor for longer than it may work."""
    monkeypatch.setattr(templating, "SECONDS", 1.0)
    assert templating._contained(lambda: time.sleep(1.2) or "a script", tmp_path) == "a script"  # type: ignore[func-returns-value]


@pytest.mark.parametrize("text", ENDLESS, ids=range(len(ENDLESS)))
def test_a_template_that_does_not_end_is_stopped(mine: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templating, "SECONDS", 1.0)
    (mine / "launch.sh.j2").write_text(f"{text}\n")
    before = os.times()
    with pytest.raises(RequestError) as raised:
        hpc_llm.render(cluster="local", method="z3", model="tiny", templates=mine)
    after = os.times()
    assert str(mine) in str(raised.value) and len(str(raised.value)) < 500
    assert text != ENDLESS[1] or "do not come to their end: after 1 s of work" in str(raised.value)
    assert after.children_user + after.children_system - before.children_user - before.children_system < 8


def test_the_command_ends_with_one_sentence_where_a_template_does_not(mine: Path) -> None:
    assert f"a template of {mine} takes more than 512 MiB of memory." in refused(mine, ENDLESS[3])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\n{{ plan.stepps }}\n", "line 2: 'dict object' has no attribute 'stepps'."),
        ("{{ nothing }}\n", "line 1: 'nothing' is undefined."),
        ("{% if %}\n", "line 1: Expected an expression, got 'end of statement block'."),
        ("a\nb\n{% for x in y %}\n", "line 3: Unexpected end of template."),
        ("{{ 1 / 0 }}\n", "line 1: division by zero."),
        ("{{ plan.workload.steps | nofilter }}\n", "line 1: No filter named 'nofilter'."),
        ("{{ [1, 2] | random }}\n", "line 1: No filter named 'random'."),  # what is looked at is what is sent
        ("{% include 'other.j2' %}\n", "line 1: there is no template 'other.j2', there are job.sh.j2"),
    ],
)
def test_a_mistake_in_a_template_is_told_with_its_line(mine: Path, text: str, said: str) -> None:
    sentence = refused(mine, text)
    assert f"hpc-llm: {mine}/launch.sh.j2, {said.rstrip('.')}" in sentence


def test_a_template_that_never_can_be_read_is_stopped(mine: Path) -> None:
    (mine / "launch.sh.j2").write_text("")
    (mine / "launch.sh.j2").unlink()
    (mine / "job.sh.j2").write_bytes(b"\xff\xfe\n")
    done = cli("render", *LOCAL, "--templates", mine)
    assert done.code == 2 and "it is not UTF-8 text" in done.err


@pytest.mark.parametrize("name", ["launch.sh.j2", "inner.j2", "below/inner.j2"])
@pytest.mark.parametrize("how", ["file", "folder", "hard link"])
def test_a_link_out_of_the_folder_is_not_followed(mine: Path, own_folder: Path, name: str, how: str) -> None:
    private = own_folder / "private" / Path(name).name
    private.parent.mkdir()
    private.write_text("launch  # PRIVATE\n")
    private.chmod(0o600)
    link = mine / name
    if how == "folder" and "/" in name:
        link.parent.symlink_to(private.parent)
    else:
        link.parent.mkdir(exist_ok=True)
        link.hardlink_to(private) if how == "hard link" else link.symlink_to(os.path.relpath(private, link.parent))
    if name != "launch.sh.j2":
        (mine / "launch.sh.j2").write_text(f"{{% include '{name}' ignore missing %}}\nlaunch\n")
    done = cli("render", *LOCAL, "--templates", mine)
    assert (done.code, done.out) == (2, "") and "is not followed" in done.err and "PRIVATE" not in done.err


def test_a_link_within_the_folder_is_followed(mine: Path, own_folder: Path) -> None:
    (mine / "real.j2").write_text("launch  # mine\n")
    (mine / "launch.sh.j2").symlink_to("real.j2")
    seen_as = own_folder / "linked"
    seen_as.symlink_to(mine)
    done = cli("render", *LOCAL, "--templates", seen_as)
    assert done.code == 0 and "launch  # mine" in done.out


def test_a_pipe_is_no_template(mine: Path) -> None:
    os.mkfifo(mine / "pipe.j2")
    assert "pipe.j2 is no regular file" in refused(mine, "{% include 'pipe.j2' %}")


def test_a_value_that_no_script_can_carry_is_still_told(mine: Path) -> None:
    shutil.copy(ROOT / "templates" / "launch.sh.j2", mine)
    done = cli("render", *LOCAL, "--templates", mine, "--logs", "a\udcff")
    assert done.code == 2 and "holds a character that a script cannot carry" in done.err


def test_the_users_own_templates_win_and_are_announced(own_folder: Path) -> None:
    folder = own_folder.parent / "config" / "hpc-llm" / "templates"
    folder.mkdir(parents=True)
    (folder / "launch.sh.j2").write_text("# mine\n")
    done = cli("render", *LOCAL)
    assert done.out.endswith("# mine\n") and f"the script is made with {folder}/launch.sh.j2" in done.err


@pytest.mark.parametrize("damage", ["writable", "link", "planted"])
def test_compiled_templates_are_taken_only_from_a_private_folder(own_folder: Path, damage: str) -> None:
    """What is in the cache is run as code."""
    cache = own_folder.parent / "cache" / "hpc-llm" / "sandboxed-templates"
    before: Any = cli("render", *LOCAL).out
    assert [path.stat().st_mode & 0o077 for path in cache.iterdir()] == [0, 0, 0]
    for path in cache.iterdir():
        path.write_bytes(b"harmful")
    if damage == "writable":
        cache.chmod(0o777)
    elif damage == "link":
        cache.rename(own_folder / "elsewhere")
        cache.symlink_to(own_folder / "elsewhere")
    else:
        cache.rename(cache.with_name("templates"))  # where another version kept what it compiled without a sandbox
    assert cli("render", *LOCAL).out == before
    if damage != "planted":
        assert all(path.read_bytes() == b"harmful" for path in cache.iterdir())


def test_what_a_template_makes_of_a_run_is_what_was_shown_of_it(mine: Path, tmp_path: Path) -> None:
    """The id is drawn at submission, and a template could wait for it: `render` shows RUN-ID in its place."""
    shutil.copytree(ROOT / "templates", mine, dirs_exist_ok=True)
    places = Places(logs=tmp_path / "runs", templates=mine)
    asked = {"cluster": "delta", "account": "bbka-delta-gpu", "model": "tiny"}
    requests = [read_request(None, asked | {"method": method}, beside={}) for method in ("z3", ["z2", "z3", "ddp"])]
    assert all(batches(one, places, preview=False) for one in requests)  # an array among them
    script = mine / "job.sh.j2"
    for trick in (
        "{% if 'RUN-ID' in run_dir %}: {% else %}touch /tmp/x{% endif %}",
        "# {{ run_dir | length }}",
        "# {{ run_dir.upper() }}",
    ):
        script.write_text((ROOT / "templates" / "job.sh.j2").read_text() + f"{trick}\n")
        with pytest.raises(RequestError, match="what `hpc-llm render` shows is not what would be sent"):
            batches(requests["length" in trick], places, preview=False)
    assert all(batches(one, places, preview=True) for one in requests)
    assert batches(requests[0], replace(places, run_id="mine"), preview=False)
    assert not places.logs.exists() or not list(places.logs.glob("[!.]*"))


SHIPPED = (ROOT / "templates" / "job.sh.j2").read_text()
HEADER = "{% for line in header %}\n{{ line.line }}\n{% endfor %}\n"
DELTA = ("--cluster", "delta", "--account", "x-delta-gpu", "--method", "z2", "--model", "tiny")


@pytest.mark.parametrize("cluster", [LOCAL, DELTA], ids=["local", "slurm"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin with `#!`"),
        ("echo hi\n", "does not begin with `#!`"),
        (SHIPPED.partition("\n")[2], "does not begin with `#!`"),
        (f" {SHIPPED}", "does not begin with `#!`"),
        *(
            (SHIPPED.replace("{% if array and", f"#SBATCH {line}\n{{% if array and", 1), f"#SBATCH --{name}: {why}")
            for line, name, why in (
                ("--nodes=9", "nodes", "the plan has to know it. Use --nodes."),
                ("-N 9", "nodes", "the plan has to know it. Use --nodes."),
                ("--array=0-5  # mine", "array", "hpc-llm sets --array itself, because tracking relies on it. Leave it out."),
                ("--qos high --output /tmp/x", "output", "hpc-llm sets --output itself, because tracking relies on it. Leave it out."),
                ("-o/tmp/x", "output", "hpc-llm sets --output itself, because tracking relies on it. Leave it out."),
                ("--overcommit", "overcommit", "Slurm then counts the CPUs of the job once a node"),
                ("--uid=root", "uid", "Slurm lets only root send a job in another's name. Leave it out."),
                ("--part=x", "part", "sbatch reads it as the beginning of --partition. Write options in full."),
            )
        ),
        *(
            (SHIPPED.replace("{% if array and", f"#SBATCH {line}\n{{% if array and", 1), f"#SBATCH {why}")
            for line, why in (
                ("hetjob", "hetjob: sbatch would make two jobs of the script. Leave it out."),
                ("--qos=high packjob", "packjob: sbatch would make two jobs of the script."),
                ("--requeue HetJob", "HetJob: sbatch would make two jobs of the script."),
                ("--requeue qos=high", "qos=high: no option. Write each as --NAME=VALUE, or leave it out."),
                (": --qos=high", ":: no option."),
            )
        ),
    ],
)  # fmt: skip
def test_a_script_of_ones_own_that_cannot_be_sent_or_tracked_is_refused(
    mine: Path, cluster: tuple[str, ...], text: str, said: str, tmp_path: Path
) -> None:
    (mine / "job.sh.j2").write_text(text)
    for command in ("render", "submit"):
        done = cli(command, *cluster, "--templates", mine, "--logs", tmp_path / "runs")
        assert (done.code, done.out) == (2, ""), done
        [sentence] = [one for one in done.err.splitlines() if str(mine) in one and "is made with" not in one]
        assert f"{mine}/job.sh.j2" in sentence and said in sentence
        assert "#!" not in said or "Its first line must be `#!/bin/bash`" in sentence
    assert not list((tmp_path / "runs").glob("[!.]*"))


@pytest.mark.parametrize("text", [SHIPPED.replace(HEADER, ""), f"#!/bin/bash\necho hi\n{HEADER}", "#!/bin/bash\n"])
def test_a_script_that_does_not_ask_for_what_the_plan_says_is_refused(mine: Path, text: str) -> None:
    (mine / "job.sh.j2").write_text(text.replace("{{ line.line }}{{ from(line.origin) }}\n", ""))
    done = cli("render", *DELTA, "--templates", mine)
    assert done.code == 2 and f"{mine}/job.sh.j2: the script that it makes lacks `#SBATCH --job-name=" in done.err
    assert "Begin it as the bundled job.sh.j2 does: `{% for line in header %}`" in done.err
    assert cli("render", *LOCAL, "--templates", mine).code == 0


PRELUDE = (ROOT / "templates" / "prelude.sh.j2").read_text()


@pytest.mark.parametrize("cluster", [LOCAL, DELTA], ids=["local", "slurm"])
@pytest.mark.parametrize(
    "more", ["if [ -d /scratch ]; then\n", "echo 'it\n", "fi\n", "for i in 1 2; echo $i; done\n", "x=(1 2\n"]
)
def test_a_script_that_bash_does_not_understand_is_refused(
    mine: Path, cluster: tuple[str, ...], more: str, tmp_path: Path
) -> None:
    (mine / "prelude.sh.j2").write_text(PRELUDE + more)
    for command in ("render", "submit"):
        done = cli(command, *cluster, "--templates", mine, "--logs", tmp_path / "runs")
        assert (done.code, done.out) == (2, ""), done
        assert re.search(
            rf"{re.escape(str(mine))}/prelude\.sh\.j2: the script that it makes is no valid bash: line \d+: ", done.err
        )
    assert not list((tmp_path / "runs").glob("[!.]*"))


def test_what_bash_understands_as_it_runs_is_taken_and_not_run(mine: Path, tmp_path: Path) -> None:
    """Nothing of a stranger's template is run before it is sent; another shell's script is left to that."""
    (mine / "prelude.sh.j2").write_text(
        f"{PRELUDE}touch {tmp_path}/ran\nshopt -s extglob\nrm -f !(kept)\ncat <<E\nif (\nE\n"
    )
    assert cli("render", *LOCAL, "--templates", mine).code == 0 and not (tmp_path / "ran").exists()
    (mine / "prelude.sh.j2").unlink()
    (mine / "job.sh.j2").write_text(f"#!/bin/zsh\n{HEADER}if [ 1 ] {{ echo x }}\n")
    assert cli("render", *LOCAL, "--templates", mine).code == 0


def test_a_template_may_ask_for_what_the_plan_does_not_count(mine: Path) -> None:
    more = "#SBATCH --mail-type=END -q high  # the group's\n# a remark\n\n#SBATCH --comment 'two words'\n"
    (mine / "job.sh.j2").write_text(f"#!/bin/bash -l\n{HEADER}{more}echo\n#SBATCH --nodes=9 is read by nobody\n")
    done = cli("render", *DELTA, "--templates", mine)
    assert done.code == 0 and more in done.out, done
    twice = cli("render", *DELTA, "--templates", mine, "--sbatch", "qos=low")
    assert twice.code == 2 and "#SBATCH --qos: the plan says it too. Leave it out, and use --sbatch qos=" in twice.err
