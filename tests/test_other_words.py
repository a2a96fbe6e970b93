"""What other programs call an option is answered with what says it here; each answer is carried out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import hpc_llm
from hpc_llm.cli import run
from hpc_llm.cli.options import RunOptions
from hpc_llm.errors import RequestError
from hpc_llm.planning.experiment import Experiment
from hpc_llm.planning.other_words import OPTIONS, SENTENCES, SETTINGS, TWO_MEANINGS, answered, meant_by
from hpc_llm.site.sbatch_options import KNOWN

ASKED: dict[str, Any] = {"cluster": "delta", "method": "z3+lora", "model": "llama2-7b", "account": "bbka-delta-gpu"}
OF_INFERENCE = ("queries", "new_tokens", "temperature")
NOT_PLANNED_ALONE = (
    "data",
    "resume",
    "env_file",
    "partition",
    "account",
    "max_parallel",
    "packing",
    "split",
    "env.NAME",
    "peft.dropout",
)
"""They need a file, a run or a site's own name."""


def test_no_word_is_an_option_of_ours_or_stands_twice() -> None:
    words = [w for _, said in OPTIONS.values() for w in said.split()] + [
        w for *_, said in SETTINGS for w in said.split()
    ]
    words += TWO_MEANINGS
    assert len({*words, *SENTENCES}) == len(words) + len(SENTENCES)
    assert not set(words) & set(Experiment.__dataclass_fields__)
    assert set(OPTIONS) <= {*Experiment.__dataclass_fields__, "max_parallel"}


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, value, _ in SETTINGS])
def test_each_setting_that_is_named_is_one(path: str, value: str) -> None:
    if path in NOT_PLANNED_ALONE:
        return
    asked = {**ASKED, "set": [f"{path}={value}"]}
    if path in OF_INFERENCE:
        asked |= {"task": "infer", "method": "ddp", "set": [*asked["set"], "precision=fp16"]}
    if path == "engine":
        asked["method"] = "ddp"
    [one] = hpc_llm.plan(**asked)
    name = path.partition(".")[0]
    assert "set" in one.origins[name], path


@pytest.mark.parametrize(("option", "value"), [(option, value) for option, (value, _) in OPTIONS.items()])
def test_each_option_that_is_named_is_one(option: str, value: str) -> None:
    if option in NOT_PLANNED_ALONE or option == "epochs":
        return
    [one] = hpc_llm.plan(**ASKED | {option: int(value) if value.isdecimal() else value})
    assert option in (*one.origins, "cluster", "method", "name", "time")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--lr 3", "there is no option '--lr' in render: it is said as --set optimizer.lr=3."),
        ("--learning-rate 3e-5", "it is said as --set optimizer.lr=3e-5."),
        ("--learning-rate high", "it is said as --set optimizer.lr=1e-4."),
        ("--gpus 2", "it is said as --gpus-per-node 2."),
        ("--walltime 2:00:00", "it is said as --time 2:00:00."),
        ("--time_limit 90", "it is said as --time 90."),
        ("--walltime soon", "it is said as --time HH:MM:SS."),
        ("-t 2:00:00", "it is said as --time HH:MM:SS"),
        ("--model_name_or_path gpt2", "it is said as --model gpt2."),
        ("--dtype fp16", "it is said as --set precision=fp16."),
        ("--attn_implementation flash_attention_2", "it is said as --set attention=flash_attention_2."),
        ("--gpus", "it is said as --gpus-per-node N."),
        ("--batch-size 4", "it is said as --micro-batch-size 4."),
        (
            "--warmup 2",
            "it is said as --set lr_ramp_steps=2 (first steps over which the learning rate rises) or --warmup-steps 2 (first",
        ),
        ("--num_warmup_steps=7", "or --warmup-steps 7 (first steps left out of the measurement)."),
        ("--warmup_ratio 0.1", "it is said as --set lr_ramp_steps=10."),
        (
            "--sequence_length 350",
            "there is no option '--sequence_length' in render: did you mean '--sequence-length'?",
        ),
        ("--fp16", "it is said as --set precision=fp16."),
        ("--zero_stage 3", "a method says it, as z1, z2 or z3."),
        ("--global-batch-size 8", "the global batch is micro batch size x gradient accumulation steps x data-parallel"),
        ("--dataset_name gsm8k", "it is said as --data SOURCE."),
        ("--num_samples 500", "it is said as --set queries=500."),
        ("--use_4bit", "a method says it, as q or qlora."),
        ("--qos high", "it is said as --sbatch qos=VALUE."),
        ("--gres gpu:2", "it is said as --gpus-per-node N."),
        ("--gres=gpu:v100:2", "it is said as --gpus-per-node N."),
        ("--ntasks 4", "one rank is started for each GPU, by --gpus-per-node N; where nodes have no GPUs by --set"),
        ("--wrap x", "hpc-llm says it to sbatch itself. Leave it out."),
        ("-G 2", "as an option of sbatch it is said as --gpus-per-node N"),
        ("-c 2", "as an option of sbatch it is said as --sbatch cpus-per-task=VALUE"),
        ("--set qos=high", "--set qos: there is no plan field 'qos': use --sbatch qos=VALUE."),
        ("--set gres=gpu:2", "--set gres: there is no plan field 'gres': use --gpus-per-node."),
        ("--clustr x", "did you mean '--cluster'?"),
        ("--steps ten", "--steps is 'ten': a whole number is needed, as in --steps 10."),
        (
            "--data validaton=x.txt",
            "There is no split or known data set 'validaton' in front of =: did you mean 'validation'?",
        ),
        ("--set lr=3", "--set lr: there is no plan field 'lr': did you mean optimizer.lr?"),
        ("--set gpus=3", "--set gpus: there is no plan field 'gpus': use --gpus-per-node."),
        ("--set lora.r=8", "did you mean peft.r?"),
        (
            "--set optimizer.lr 1e-3",
            "--set optimizer.lr 1e-3: a setting is one word, PATH=VALUE. Write --set optimizer.lr=1e-3.",
        ),
        ("--deepspeed ds.json", "a method holds it: configs/NAME.yaml, or deepspeed.KEY=VALUE with set."),
        ("--set temperature=3", "--set temperature: task pretrain does not heed temperature, --task infer does."),
    ],
)
def test_the_command_line_names_what_does_it(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "--cluster", "local", "--method", "z3", *shlex.split(typed)]) == 2
    assert said in capsys.readouterr().err


SBATCH_VALUES = {
    "gres": "lustre:1",
    "tres-per-task": "license/x:1",
    "nodelist": "gn1",
    "nodefile": "gn1",
    "cpus-per-task": "4",
    "cpus-per-gpu": "4",
    "signal": "USR1@60",
    "mem": "100G",
    "begin": "now",
    "deadline": "now+9days",  # "tomorrow" is a minute away at midnight
    "distribution": "block",
    "gpu-bind": "none",
    "gres-flags": "enforce-binding",
    "mem-bind": "none",
    "hint": "nomultithread",
    "kill-on-invalid-dep": "yes",
    "mail-type": "END",
}
BY_SENTENCE = {"--gpus-per-node N; where": "--gpus-per-node 2", "signal=": "--sbatch signal=B:USR1@300 --save-every 5"}


@pytest.mark.parametrize("option", sorted(name for name in RunOptions.__annotations__ if "_" in name))
def test_an_option_with_an_underscore_is_named_as_it_is_written(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written = {"as_json": "json"}.get(option, option).replace("_", "-")
    assert run(["submit", "--cluster", "local", "--method", "z3", f"--{written.replace('-', '_')}", "3"]) == 2
    assert f"did you mean '--{written}'?" in capsys.readouterr().err


@pytest.mark.parametrize("option", sorted(KNOWN))
def test_what_is_advised_for_an_option_of_sbatch_is_not_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {one.replace("_", "-") for one in (*Experiment.__dataclass_fields__, "verbose")}
    if option in (*own, "help", "usage", "version", "output", "time-min", "cluster-constraint", "gid", "uid"):
        return
    base = ["render", *(word for name, value in ASKED.items() for word in (f"--{name}", value))]
    value = SBATCH_VALUES.get(option, "1")
    assert run([*base, f"--{option}={value}"]) == 2
    said = capsys.readouterr().err
    way = said.partition("it is said as ")[2].partition(". `")[0]
    way = way or next((line for words, line in BY_SENTENCE.items() if words in said), "")
    if not way:
        assert "Leave it out" in said or "submit --" in said or "--env-file" in said, said
        return
    filled = way.replace("VALUE", value).replace("TEXT", "a").replace(" N", " 2").replace("NAME", "gpuA100x4")
    assert run([*base, *shlex.split(filled)]) == 0, (said, filled, capsys.readouterr().err)


def test_what_is_advised_for_an_option_of_sbatch_in_a_file_is_not_refused() -> None:
    for key, value in {"gres": "gpu:2", "tres-per-node": "gres/gpu:2"}.items():
        with pytest.raises(RequestError, match="it is said as gpus-per-node: N"):
            hpc_llm.plan(ASKED | {key: value})
    with pytest.raises(RequestError, match=r"it is said as sbatch: \{requeue: true\}"):
        hpc_llm.plan(ASKED | {"requeue": True})
    assert hpc_llm.plan(ASKED | {"sbatch": {"requeue": True}})
    with pytest.raises(RequestError, match=r"it is said as sbatch=\['nodelist=VALUE'\]"):
        hpc_llm.plan(**ASKED | {"nodelist": "gn1"})
    assert hpc_llm.plan(**ASKED, sbatch=["nodelist=gn1"])
    with pytest.raises(RequestError, match="it is said as --sbatch chdir=VALUE"):
        hpc_llm.plan(ASKED | {"chdir": "/x"})


def test_files_and_programs_are_answered_in_their_own_spelling() -> None:
    assert meant_by("lr", "file") == "set: {optimizer.lr: 1e-4}"
    assert answered("option", "batch_size", "") == "there is no option 'batch_size': it is said as micro_batch_size."
    with pytest.raises(RequestError, match=r"'learning_rate': it is said as set: \{optimizer.lr: 1\}"):
        hpc_llm.plan(ASKED | {"learning_rate": 1})
    with pytest.raises(RequestError, match="there is no option 'gpus': it is said as gpus_per_node"):
        hpc_llm.plan(**ASKED | {"gpus": 1})
    with pytest.raises(
        RequestError, match=r"runs 1 [(]a[)]: there is no option 'batch': it is said as micro-batch-size: 1"
    ):
        hpc_llm.plan(ASKED | {"runs": [{"name": "a", "batch": 1}]})


def test_what_a_file_sets_is_named_as_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    for text, said in (
        ("steps: 20\nset: {steps: 30}", "e.yaml: set: steps=30 say two things of steps"),
        (
            "set: {optimzer.lr: 1}",
            "e.yaml: set.optimzer.lr: there is no plan field 'optimzer': did you mean 'optimizer'",
        ),
        ("task: tune\nset: {margin: 4}", "e.yaml: set.margin=4.0: a part of the memory"),
        ("set: {temperature: 4}", "e.yaml: set.temperature: task pretrain does not heed temperature"),
        ("matrix: {set.lr: [1]}", "e.yaml: matrix: set.lr: there is no plan field 'lr': did you mean optimizer.lr"),
    ):
        file.write_text(f"cluster: local\nmethod: z3\nmodel: tiny\n{text}\n")
        with pytest.raises(RequestError) as caught:
            hpc_llm.plan(file)
        assert said in str(caught.value) and "--set" not in str(caught.value)


def test_a_profile_does_not_name_itself_among_what_it_may_extend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clusters").mkdir()
    for parent in ("minne", "mine"):
        (tmp_path / "clusters" / "mine.yaml").write_text(f"extends: {parent}\n")
        with pytest.warns(Warning), pytest.raises(RequestError) as caught:
            hpc_llm.cluster("mine")
        assert "mine," not in str(caught.value) and "'mine'" not in str(caught.value)
