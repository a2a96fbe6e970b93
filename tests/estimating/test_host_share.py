"""What a node has, and what a job gets of it, are two things: an estimate says which of them nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_llm.cli import run

PROFILE = """
schema: 1
name: here
title: nodes without a GPU
status: {state: verify, checked: "2026-11"}
sources: [sinfo]
scheduler: slurm
gpu: {vendor: none}
node: {cpus: 36%s}
partitions: [{name: only, max_time: "00:30:00", default: true}]
request: {gpu_style: none}
launch: {single_node: srun, multi_node: srun, allowed: [srun]}
prelude: {module_system: none, python: {kind: venv, env: /e}}
defaults: {model: tiny}
"""


@pytest.mark.parametrize(
    ("memory", "asked", "told"),
    [
        ("", [], "(nobody says how much there is)"),
        (", mem_gb: 750", [], "of 698 GiB (a job's share is not said)"),
        (", mem_gb: 750", ["--sbatch", "mem=8G"], "fits, 0.31 GiB to 0.99 GiB of 8.0 GiB"),
        (", mem_gb: 750", ["--sbatch", "mem=600M"], "too close to call, 0.31 GiB to 0.99 GiB of 0.59 GiB"),
        (", mem_gb: 750", ["--sbatch", "mem=200M"], "does not fit, 0.31 GiB to 0.99 GiB of 0.20 GiB"),
    ],
)
def test_the_host_is_held_to_what_is_known_of_it(
    memory: str, asked: list[str], told: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("clusters").mkdir()
    Path("clusters/here.yaml").write_text(PROFILE % memory)
    assert run(["estimate", "--cluster", "here", "--method", "ddp", *asked]) == 0
    lines = capsys.readouterr().out.splitlines()
    [of_host] = [line for line in lines if line.startswith("host, each node: ")]
    assert told in of_host and max(map(len, lines)) <= 80
