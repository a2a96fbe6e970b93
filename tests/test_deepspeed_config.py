"""The lists of DeepSpeed's keys against the DeepSpeed that is installed, whose source is read, not run."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rendering import METHODS, planned

from hpc_llm.errors import RequestError
from hpc_llm.planning.deepspeed_config import TOP_LEVEL, ZERO, check_keys


@pytest.fixture(scope="module")
def source() -> Path:
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None and spec.origin is not None, "deepspeed is missing: python -m pip install -e '.[train]'"
    return Path(spec.origin).parent


def model_fields(path: Path, name: str) -> set[str]:
    """Fields and aliases of a pydantic class in a source file."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    found.add(statement.target.id)
                    found |= set(re.findall(r"alias=[\"'](\w+)[\"']", ast.unparse(statement)))
    assert found, f"{name} is no longer in {path}"
    return found


def test_the_zero_keys_are_deepspeeds(source: Path) -> None:
    fields = model_fields(source / "runtime" / "zero" / "config.py", "DeepSpeedZeroConfig")
    assert fields == ZERO


READ_TOP_LEVEL = """
import json, logging
logging.disable(logging.CRITICAL)
from deepspeed.runtime.config import DeepSpeedConfig

class Recorder(dict):
    asked = set()
    def get(self, key, default=None):
        self.asked.add(key)
        return super().get(key, default)
    def __getitem__(self, key):
        self.asked.add(key)
        return super().__getitem__(key)
    def __contains__(self, key):
        self.asked.add(key)
        return super().__contains__(key)

config = Recorder(train_batch_size=1, train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=1)
DeepSpeedConfig(config)
print("@@" + json.dumps(sorted(k for k in Recorder.asked if isinstance(k, str))))
"""


def test_every_key_that_deepspeed_asks_for_is_listed() -> None:
    """DeepSpeed says nothing of a key that it does not know, so it is asked which it looks up when it reads a config."""
    done = subprocess.run([sys.executable, "-c", READ_TOP_LEVEL], capture_output=True, text=True, check=False)
    assert "@@" in done.stdout, done.stderr[-2000:]
    asked = set(json.loads(done.stdout.rsplit("@@", 1)[1]))
    assert {"zero_optimization", "fp16", "bf16", "gradient_clipping", "steps_per_print"} <= asked
    assert asked - TOP_LEVEL == set()


def test_no_listed_key_is_an_invention(source: Path) -> None:
    """Each stands as a string somewhere in DeepSpeed, be it to say that the feature is gone."""
    text = "\n".join(path.read_text(errors="ignore") for path in source.rglob("*.py"))
    words = set(re.findall(r"[\"'](\w+)[\"']", text)) | set(re.findall(r"^    (\w+):", text, re.MULTILINE))
    assert TOP_LEVEL - words == set()


ACCEPT = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from deepspeed.runtime.config import DeepSpeedConfig
for name, config in json.load(sys.stdin).items():
    try:
        DeepSpeedConfig(config)
    except Exception as error:
        print(name, type(error).__name__, error)
print("@@read")
"""


def test_deepspeed_reads_the_config_of_every_method() -> None:
    configs = {}
    for name in METHODS:
        config = planned("taiwania2", name, gpus_per_node=1).plan.engine.deepspeed
        configs[name] = {
            k: v for k, v in config.items() if k != "quantize_training"
        }  # the worker leaves it out as well
    done = subprocess.run(
        [sys.executable, "-c", ACCEPT], input=json.dumps(configs), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in done.stdout.splitlines() if line.split(" ")[0] in METHODS] == []
    assert "@@read" in done.stdout


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"zero_optimisation": {}},
            "there is no DeepSpeed key 'zero_optimisation' in here: did you mean 'zero_optimization'?",
        ),
        ({"zero_optimization": {"stge": 1}}, "'stge' in here, zero_optimization: did you mean 'stage'?"),
        ({"zero_optimization": "stage 3"}, "here, zero_optimization: holds 'stage 3', keys of its own are needed."),
        ({"fp16": None}, "here, fp16: holds None"),
        ({"zero_optimization": {"stage": -1}}, "stage is -1. Valid: 0, 1, 2, 3."),
    ],
)
def test_wrong_keys_are_named_with_their_place(config: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_keys(config, "here")
    assert said in str(caught.value)
