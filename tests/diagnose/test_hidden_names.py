"""A secret that stood where a name was expected is shown nowhere in a diagnosis, and what is advised can be followed."""

from __future__ import annotations

import json
from typing import Any

import pytest

DRAWN = "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"
SHAPES = (DRAWN, "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4", "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")


@pytest.mark.parametrize("secret", SHAPES)
@pytest.mark.parametrize(
    "line",
    [
        "job.sh: line 4: {}: command not found\n", "/var/spool/slurmd/job9/slurm_script: line 7: ={}: command not found\n",
        "bash: {}: command not found\n", "ModuleNotFoundError: No module named '{}'\n", "slurmstepd: error: execve(): {}: No such file or directory\n",
    ],
)  # fmt: skip
def test_a_secret_that_was_called_is_not_told(line: str, secret: str, diagnose: Any) -> None:
    found = diagnose(line.format(secret))
    said = json.dumps([found.to_dict(), found.reason, found.several])
    assert secret.strip("=")[4:] not in said
    assert "module that brings" not in found.remedy and "find out what brings" not in found.remedy


def test_what_to_do_is_told_where_a_blank_slipped_in(diagnose: Any) -> None:
    remedy = diagnose(f"job.sh: line 4: {DRAWN}: command not found\n").remedy
    assert "NAME=value" in remedy and "new one" in remedy and "chmod 600" in remedy
    assert "module" in diagnose("job.sh: line 4: nvcc-of-theirs: command not found\n").remedy


@pytest.mark.parametrize(
    "line",
    [
        "job.sh: line 4: {}: command not found\n", "zsh:1: command not found: {}\n", "bash: export: `{}': not a valid identifier\n",
    ],
)  # fmt: skip
def test_a_drawn_word_of_no_known_shape_is_not_told_either(line: str, diagnose: Any) -> None:
    found = diagnose(line.format("4f1c0a9b8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a"))
    assert "9b8d7e6f" not in json.dumps([found.to_dict(), found.reason])
    named = diagnose(line.format("my_own_training_script_v2_final_2024"))
    assert "my_own_training_script_v2_final_2024" in json.dumps(named.to_dict())
