"""Program for an environment with old releases: trains, saves and loads on the CPU, and ends with 1 where something is not right.

It needs nothing but what a job needs; `make test-old-stack` makes the environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

from tiny_plans import make_plan  # noqa: E402

from hpc_llm.planning.experiment import Plan  # noqa: E402
from hpc_llm.records.files import read_json, write_json  # noqa: E402
from hpc_llm.records.run import RunPaths  # noqa: E402

ENVIRON = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
FP32 = {"precision": "fp32", "optimizer": {"type": "AdamW", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8}}
TRAINED = {
    "z2o": make_plan("z2o"),
    "z3": make_plan("z3", recompute=0.5),
    "q": make_plan(
        "q", optimizer=FP32["optimizer"]
    ),  # bitsandbytes steps in 8 bits on a GPU only, in releases of that age
    "qlora": make_plan("qlora"),
    "plain": make_plan("ddp", engine="plain"),
}
_TUNED = {"task": "finetune", "eval_every": 0, "save_every": 12, "lr_schedule": "linear"}
T5 = {
    "t5 z3": ("z3", {}),
    "t5 z3lora": ("z3lora", {}),
    "t5 plain": ("ddp", {"engine": "plain"}),
}
RESUMED = {
    "plain": make_plan("ddp", engine="plain", **FP32),
    "z0": make_plan("ddp", **FP32),
    "z2": make_plan("z2", **FP32),
    "z3": make_plan("z3", **FP32),
    "z3lora": make_plan("z3lora", **FP32),
}
LOAD = """
import sys, torch
from transformers import AutoModelForCausalLM
model, info = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
assert not info["missing_keys"] and not info["unexpected_keys"], info
tokens = torch.arange(64)[None]
print(float(model(input_ids=tokens, labels=tokens).loss))
"""
MAKE_T5 = """
import sys, torch
from transformers import T5Config, T5ForConditionalGeneration
shape = dict(vocab_size=512, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_decoder_layers=2, num_heads=4, dropout_rate=0.0)
torch.manual_seed(3)
config = T5Config(**shape, feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0, initializer_factor=0.2)
T5ForConditionalGeneration(config).save_pretrained(sys.argv[1])
"""
LOAD_T5 = """
import sys
from pathlib import Path
from transformers import T5ForConditionalGeneration
base, kept = sys.argv[1:]
if (Path(kept) / "adapter_config.json").exists():
    from peft import PeftModel
    model = PeftModel.from_pretrained(T5ForConditionalGeneration.from_pretrained(base), kept)
    learned = [one for name, one in model.named_parameters() if "lora_B" in name]
    assert learned and all(one.abs().sum() > 0 for one in learned)
else:
    model, info = T5ForConditionalGeneration.from_pretrained(kept, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    assert not model.lm_head.weight.equal(model.shared.weight)
"""


def main() -> int:
    print(
        ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "deepspeed", "bitsandbytes", "peft"))
    )
    with tempfile.TemporaryDirectory() as folder:
        problems = [
            *(_train(name, plan, Path(folder) / name) for name, plan in TRAINED.items()),
            *_tune_t5(Path(folder) / "t5"),
            *_resume(Path(folder) / "resumed"),
        ]
    for name, problem in problems:
        print(f"{name}: {problem or 'as it should be'}")
    return 1 if any(problem for _, problem in problems) else 0


def _train(name: str, plan: Plan, folder: Path) -> tuple[str, str | None]:
    paths = RunPaths(folder)
    write_json(paths.experiment, {"schema": 1, "run_id": name, "plan": plan.to_dict()})
    done = _python("-m", "hpc_llm.worker.pretrain_llm", "--run-dir", str(folder))
    result: dict[str, Any] = read_json(paths.result) or {}
    if result.get("outcome") != "COMPLETED":
        return name, result.get("outcome_reason") or done.stderr[-2000:]
    first, last = result["loss_first"], result["loss_last"]
    return name, None if last < first - 0.2 < 6.5 else f"the loss goes from {first} to {last}"


def _tune_t5(folder: Path) -> list[tuple[str, str | None]]:
    """An encoder and decoder with a head of its own: trained, kept, and loaded as transformers and PEFT of that age do."""
    base = folder / "base"
    made = _python("-c", MAKE_T5, str(base))
    if made.returncode:
        return [("t5", made.stderr[-1000:])]
    found = []
    for name, (method, changes) in T5.items():
        _, problem = _train(name, make_plan(method, model=str(base), **_TUNED, **changes), folder / name)
        if problem is None:
            loaded = _python("-c", LOAD_T5, str(base), str(RunPaths(folder / name).model))
            problem = loaded.stderr[-1000:] if loaded.returncode else None
        found.append((name, problem))
    return found


def _resume(folder: Path) -> list[tuple[str, str | None]]:
    """Twenty steps with a checkpoint after ten, and the last ten again from there."""
    problems = []
    for name, plan in RESUMED.items():
        shared = {"plan": plan.to_dict(), "after": 10}
        kept, weights = str(folder / f"kept-{name}"), str(folder / f"weights-{name}")
        whole = {**shared, "steps": 20, "load": None, "save": kept, "weights": weights}
        rest = {**shared, "steps": 10, "load": kept, "save": None, "weights": None}
        problem = _session(folder, f"{name}-whole", whole) or _session(folder, f"{name}-rest", rest)
        problems.append((f"{name}, saved and loaded", problem or _compare(folder, name)))
    return problems


def _session(folder: Path, name: str, wanted: dict[str, Any]) -> str | None:
    """In a process of its own: DeepSpeed of that age has one group of ranks a process."""
    folder.mkdir(exist_ok=True)
    (folder / "request.json").write_text(json.dumps({name: wanted}), encoding="utf-8")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1")
    done = _python(*launch, str(HERE / "sessions.py"), str(folder))
    return done.stderr[-4000:] if done.returncode else None


def _compare(folder: Path, name: str) -> str | None:
    whole, rest = (read_json(folder / f"{name}-{part}" / "found-0.json") or {} for part in ("whole", "rest"))
    if "error" in whole or "error" in rest:
        return str(whole.get("error") or rest["error"])
    off = max(abs(a - b) / a for a, b in zip(whole["losses"][10:], rest["losses"], strict=True))
    if off > 1e-6:
        return f"the losses differ by {off}"
    done = _python("-c", LOAD, str(folder / f"weights-{name}"))
    return done.stderr[-1000:] if done.returncode else None


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=ENVIRON, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
