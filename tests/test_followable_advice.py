"""What a command advises can be done as it stands, and what is wrong with the words of a request is told as a wrong request."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from rights import mounted

import hpc_llm
from hpc_llm.api.experiments import prepare
from hpc_llm.cli import COMMANDS, run
from hpc_llm.cli.usage import COMMANDS_ELSEWHERE
from hpc_llm.errors import RequestError
from hpc_llm.planning.tasks import find as find_task

ONE = ["--cluster", "local", "--method", "z3", "--model", "tiny"]


def said(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    assert run(arguments) == code
    return capsys.readouterr().err


# --- the folder of the runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["submit", *ONE], ["render", *ONE], ["status"], ["logs", "x"]])
@pytest.mark.parametrize(
    ("logs", "why"),
    [("afile", "it is a file"), ("afile/x", "afile is a file"), ("afile/x/y", "afile is a file")],
)
def test_a_folder_of_runs_inside_a_file_is_a_wrong_request(
    command: list[str], logs: str, why: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("afile").write_text("x")
    assert f"--logs {logs}: {why}, the folder that holds the runs is needed." in said(
        [*command, "--logs", logs], capsys
    )


def test_a_folder_of_runs_that_is_still_to_be_made_is_none(own_folder: Path) -> None:
    assert run(["render", *ONE, "--logs", "new/one", "-o", "job.sh"]) == 0


# --- methods and clusters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "way"),
    [
        (["z3"], "z3 is the name of a method, and no experiment file. Write --method z3."),
        (["z3", "--cluster", "local"], "Write --method z3."),
        (["local"], "local is the name of a cluster, and no experiment file. Write --cluster local."),
        (["--method", "z2o,", "z3"], "several methods are one word, as in --method z2o,z3."),
        (["--method", "z2o,z1", "z3"], "several methods are one word, as in --method z2o,z1,z3."),
        (["--cluster", "delta", "local"], "several clusters are one word, as in --cluster delta,local."),
        (["--cluster", "local", "--method", "z2o z3"], "method 'z2o z3': several names are separated by commas, as in z2o,z3."),
        (["--cluster", "local", "--method", "z2o;z3"], "separated by commas, as in z2o,z3."),
        (["--cluster", "delta local", "--method", "z3"], "separated by commas, as in delta,local."),
    ],
)  # fmt: skip
def test_several_names_are_written_as_the_request_has_them(
    arguments: list[str], way: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(["render", *arguments], capsys).strip().endswith(way)


def test_a_letter_with_blanks_around_it_is_no_list(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "separated by commas" not in said(["render", "--cluster", "local", "--method", "z3 + o"], capsys)


@pytest.mark.parametrize(
    ("options", "way"), [({}, "Write method='z3'."), ({"method": "z2o"}, r"Write method=\['z2o', 'z3'\]\.")]
)
def test_python_is_told_its_own_words(options: dict[str, str], way: str, own_folder: Path) -> None:
    with pytest.raises(RequestError, match=way):
        prepare("z3", **options)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"\(in Python cluster=\)"):
        prepare(method="z3")


# --- a script -------------------------------------------------------------------------------------------------------


def test_a_script_that_was_written_is_to_look_at(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = "to look at: hpc-llm submit with the same options sends it"
    assert told in said(["render", *ONE, "-o", "job.sh"], capsys, 0)
    assert told not in said(["render", *ONE, "-o", "job.json", "--json"], capsys, 0)
    for arguments in (["render", "job.sh"], ["submit", "job.sh"]):
        assert "job.sh is a script, and no experiment file: hpc-llm makes the script itself" in said(arguments, capsys)
    Path("job.sh").write_text("#!/bin/bash\n# nothing else\n")
    assert "job.sh is a script" in said(["render", "job.sh"], capsys)
    Path("x.yaml").write_text("a: b: c\n")
    assert "not valid YAML" in said(["render", "x.yaml"], capsys)


# --- commands and options of elsewhere ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "way"),
    [
        ("plan", "`hpc-llm render --explain`"),
        ("wait", "`hpc-llm submit --wait`"),
        ("results", "`hpc-llm report`"),
        ("run", "`hpc-llm submit`"),
        ("queue", "`hpc-llm status`"),
        ("history", "`hpc-llm status`"),
        ("resubmit", "`hpc-llm submit --resume RUN`"),
        ("Stop", "`hpc-llm cancel RUN`"),
        ("tune", "`hpc-llm submit --task tune`"),
        ("dry_run", "`hpc-llm render --explain`"),
        ("rm", "`hpc-llm clean`"),
    ],
)
def test_a_command_of_elsewhere_is_told_as_it_is_here(word: str, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = said([word], capsys)
    assert f"there is no command '{word}': " in told and way in told and "did you mean" not in told


def test_every_way_names_a_command_that_there_is() -> None:
    for words, way in COMMANDS_ELSEWHERE.items():
        assert not set(words.split()) & set(COMMANDS)
        assert all(one in (*COMMANDS, "-h", "--version", "COMMAND") for one in re.findall(r"`hpc-llm (\S+?)[ `]", way))
        for task in words.split() if "{word}" in way else ():
            assert find_task(task).name == task


@pytest.mark.parametrize("function", sorted(set(hpc_llm.__all__) - set(COMMANDS)))
def test_a_function_of_python_leads_to_no_command_that_removes(
    function: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "'clean'" not in said([function], capsys).partition("Valid:")[0]


def test_an_option_before_its_command_is_told_where_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(["--cluster", "local", "submit", "--method", "z3"], capsys)
    assert "--cluster stands before the command, and its options stand behind it: hpc-llm submit --cluster …" in told
    assert "did you mean '--version'" in said(["--verison"], capsys)


@pytest.mark.parametrize("option", ["seed", "steps", "micro-batch-size", "nodes", "sequence-length"])
def test_several_numbers_are_the_axis_of_a_study(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(["render", *ONE, f"--{option}", "1,2"], capsys)
    assert (
        f"--{option} is '1,2': a run has one. Several are runs of a study, a file with matrix: {{{option}: [1, 2]}}."
        in told
    )


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "near"),
    [
        ("Qwen2.5-7B", "qwen2-7b"),
        ("qwen2.5-0.5b", "qwen2-0.5b"),
        ("qwen3-7b", "qwen2-7b"),
        ("llama3-8b", "llama3.1-8b"),
        ("llama-13b", "llama2-13b"),
        ("TINY", "tiny"),
        ("mistral-7b-v0.3", "mistral-7b-v0.2"),
    ],
)
def test_the_model_of_that_size_and_the_nearest_version_is_offered(model: str, near: str) -> None:
    with pytest.raises(RequestError, match=rf"did you mean '{re.escape(near)}'\?"):
        prepare(cluster="local", method="z3", model=model)


@pytest.mark.parametrize("model", ["tiny,llama2-7b", "tiny, llama2-7b", "tiny llama2-7b"])
def test_several_models_are_the_axis_of_a_study(model: str) -> None:
    with pytest.raises(RequestError, match=r"a run has one model\. .* matrix: \{model: \[tiny, llama2-7b\]\}\.$"):
        prepare(cluster="local", method="z3", model=model)


# --- what a value may be, and whose it is ---------------------------------------------------------------------------

DELTA = ["--cluster", "delta", "--account", "x-delta-gpu"]


@pytest.mark.parametrize("given", ["q_proj", "q_proj,v_proj"])
def test_a_list_is_told_beside_the_word_and_taken(
    given: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["render", *DELTA, "--method", "lora", "--set"]
    told = said([*asked, f"peft.target_modules={given}"], capsys)
    assert f"it must be 'all-linear', or a list, as in [{given}]." in told
    assert run([*asked, f"peft.target_modules=[{given}]"]) == 0


def test_clusters_with_accounts_of_their_own_are_asked_together(
    own_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    asked = ["render", "--cluster", "taiwania2,delta", "--method", "z3"]
    for account, name, fitting in (("ACD110018", "delta", "x-delta-gpu"), ("x-delta-gpu", "taiwania2", "ACD110018")):
        told = said([*asked, "--account", account], capsys)
        way = re.search(
            r"leave --account out and write account: \{default: NAME\} into (\S+) with `(extends: \w+)`", told
        )
        assert way is not None and name in way[1] and f"method z3 on cluster {name}: " in told
        Path(way[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(way[1]).write_text(f"schema: 1\nname: {name}\n{way[2]}\naccount: {{default: {fitting}}}\n")
    assert run(asked) == 0


def test_an_account_that_the_command_does_not_name_is_told_with_its_place(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "foo")
    told = said(["render", "--cluster", "delta", "--method", "z3"], capsys)
    assert "account 'foo' (environment: SBATCH_ACCOUNT) does not fit" in told and "--account out" not in told


@pytest.mark.parametrize("name", ["z3+", "+z3", "z3++o"])
def test_a_plus_with_nothing_beside_it_is_refused(
    name: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    way = re.search(r"Leave it out \((\S+)\)", said(["render", *DELTA, "--method", name], capsys))
    assert way is not None and run(["render", *DELTA, "--method", way[1]]) == 0


def test_what_is_kept_of_no_checkpoints_is_noticed(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["render", *DELTA, "--method", "z3", "--set", "keep=5"]
    assert "it has an effect with --save-every alone" in said(asked, capsys, 0)
    assert "--save-every alone" not in said([*asked, "--save-every", "5"], capsys, 0)


def test_numbers_of_a_matrix_are_a_list(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "cluster: delta\naccount: x-delta-gpu\nmatrix:\n  method: [z3]\n  micro-batch-size: {}\n"
    Path("e.yaml").write_text(text.format("1,2"))
    assert "Several are a list under matrix: [1,2]." in said(["render", "e.yaml"], capsys)
    Path("e.yaml").write_text(text.format("[1,2]"))
    assert run(["render", "e.yaml"]) == 0


def test_one_of_a_sweep_is_taken_by_its_method(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("e.yaml").write_text("cluster: delta\naccount: x-delta-gpu\nmethod: [z2, z3]\n")
    told = said(["render", "e.yaml", "--run", "z3-hpc2"], capsys)
    assert "Leave --run out; one of a sweep is taken by --method or --cluster." in told
    assert run(["render", "e.yaml", "--method", "z3"]) == 0


def test_less_memory_than_a_node_has_is_told_as_what_was_asked_for(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["submit", "--dry-run", "--cluster", "taiwania2", "--account", "ACD110018", "--method", "z3", "--sbatch"]
    told = capsys.readouterr().err if run([*asked, "mem=10G"]) in (0, 1, 2) else ""
    assert re.search(r"--sbatch mem=10G asks for less: leave it out, or take --sbatch mem=\d+G", told)


@pytest.mark.parametrize(
    ("method", "less"), [("z3", "mem=5G"), ("z3o", "mem=60G"), ("z3", "mem-per-gpu=1G"), ("z2o", "mem-per-cpu=500M")]
)
def test_memory_that_a_refusal_advises_fits_for_certain(
    own_folder: Path, capsys: pytest.CaptureFixture[str], method: str, less: str
) -> None:
    """The part of it that may not be free is in the advice, as it is in the verdict."""
    asked = ["submit", "--dry-run", *DELTA, "--gpus-per-node", "4", "--method", method, "--sbatch"]
    assert run([*asked, less]) == 2
    way = re.search(r"take --sbatch mem=(\d+)G", capsys.readouterr().err)
    assert way is not None
    for size, is_close in ((int(way[1]), False), (int(way[1]) - 1, True)):
        assert run([*asked, f"mem={size}G"]) == 0
        told = capsys.readouterr().err
        assert ("too close to call" in told) == is_close, told
    bounds = re.search(
        r"to (\d+) GiB of a node's memory, which has \d+ GiB, of which no more than (\d+) GiB may be free", told
    )
    assert bounds is not None and int(bounds[1]) >= int(bounds[2])


def test_an_estimate_that_is_too_close_says_what_may_be_free(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["estimate", "--cluster", "delta", "--method", "z3", "--gpus-per-node", "3"]) in (0, 4)
    told = capsys.readouterr().out
    assert re.search(
        r"device, each GPU: too close to call, .* to 39\.8 GiB of 40\.0 GiB\n  no more than 39\.2 GiB of that may be free\n",
        told,
    )


# --- one slip, one way on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "ways"),
    [("1,000", ["1000"]), ("1,250", ["1250", "matrix: "]), ("10,20", ["matrix: "]), ("1,000,000", ["1000000"])],
)
def test_a_number_with_commas_is_one_number_where_it_can_be_no_list(
    steps: str, ways: list[str], own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("e.yaml").write_text(f"cluster: local\nmethod: z3\nmodel: tiny\nsteps: {steps}\n")
    for arguments in (["e.yaml"], [*ONE, "--steps", steps]):
        told = said(["render", *arguments], capsys)
        assert re.findall(r"(?<=Write )\d+|matrix: ", told) == ways
    one = next((way for way in ways if way.isdecimal()), None)
    assert one is None or run(["render", *ONE, "--steps", one]) == 0


def test_sources_in_one_word_are_told_as_several(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.jsonl", "b c.jsonl"):
        Path(name).write_text('{"text": "words"}\n')
    asked = ["render", "--cluster", "local", "--task", "prepare", "--model", "tiny"]
    way = said([*asked, "--data", "a.jsonl,b c.jsonl"], capsys).partition("Each is said on its own: ")[2]
    assert run([*asked, *shlex.split(way.strip().removesuffix("."))]) == 0
    Path("e.yaml").write_text("cluster: local\ntask: prepare\nmodel: tiny\ndata: a.jsonl,b c.jsonl\n")
    way = said(["render", "e.yaml"], capsys).partition("Several are a list: ")[2].strip().removesuffix(".")
    Path("e.yaml").write_text(f"cluster: local\ntask: prepare\nmodel: tiny\ndata: {way}\n")
    assert run(["render", "e.yaml"]) == 0


def test_a_path_of_an_experiment_file_is_looked_for_beside_its_folders(
    own_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = tmp_path / "clone" / "examples"
    examples.mkdir(parents=True)
    (examples / "q.jsonl").write_text('{"text": "words"}\n')
    file = examples / "e.yaml"
    file.write_text("cluster: local\ntask: prepare\nmodel: tiny\ndata: examples/q.jsonl\n")
    told = said(["render", str(file)], capsys)
    assert f"counts from the working directory, not from the file: {examples}/q.jsonl is there; write that path" in told
    assert run(["render", str(file), "--data", f"{examples}/q.jsonl"]) == 0
    (examples / "q.jsonl").unlink()
    assert "counts from the working directory, not from the file." in said(["render", str(file)], capsys)


def test_a_log_that_is_not_there_is_told_as_a_file(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("slurm-12.out").write_text("words\n")
    told = said(["diagnose", "slurm-21.out"], capsys)
    assert "there is no file or folder slurm-21.out: did you mean slurm-12.out? No run of that name is in logs." in told
    assert "there is no file or folder x.log, and no run of that name is in logs." in said(
        ["diagnose", "x.log"], capsys
    )
    assert "no file" not in said(["diagnose", "x"], capsys)


@pytest.mark.parametrize("option", ["sequence-length", "gpus-per-node", "env-file"])
def test_python_spells_an_option_with_underscores(option: str, own_folder: Path) -> None:
    with pytest.raises(RequestError, match=rf"'{option}': in Python it is spelled {option.replace('-', '_')}=\.$"):
        prepare(cluster="local", method="z3", **{option: 1})  # type: ignore[arg-type]


def test_a_configuration_of_deepspeed_is_told_where_it_belongs(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = '{"zero_optimization": {"stage": 3}}'
    Path("ds.json").write_text(content)
    told = said(["render", "--cluster", "delta", "--account", "x-delta-gpu", "--method", "ds.json"], capsys)
    assert (
        "Write ./configs/ds.yaml with `extends: z3` and `deepspeed: …`, the content of the file, and name it ds."
        in told
    )
    Path("configs").mkdir()
    Path("configs/ds.yaml").write_text(f"extends: z3\ndeepspeed: {content}\n")
    assert run(["render", "--cluster", "delta", "--account", "x-delta-gpu", "--method", "ds"]) == 0


def test_a_folder_that_cannot_be_written_is_told_with_the_file_that_was_named(
    own_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.log").write_text("{'loss': 3.0, 'epoch': 1.0}\n{'loss': 2.0, 'epoch': 2.0}\n")
    with mounted(tmp_path / "disk", "1m") as disk:
        disk.make_read_only()
        for command in (["render", *ONE], ["parse", "x.log"]):
            told = said([*command, "-o", f"{disk.folder}/made.txt"], capsys, 1)
            assert (
                f"{disk.folder}/made.txt: Read-only file system. The folder {disk.folder} is read-only: name another"
                in told
            )


def test_a_python_without_the_packages_is_told_in_a_sentence(tmp_path: Path) -> None:
    """`-S` leaves out what is installed; the package itself lies in the working directory."""
    command = [sys.executable, "-S", "-m", "hpc_llm", "clusters"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert f"{sys.executable} lacks " in done.stderr and "-m pip install FOLDER" in done.stderr
