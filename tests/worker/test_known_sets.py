"""The sets that are known by name, in copies laid out as they are on the Hub: prepared, planned, and fine-tuned on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from worlds import Worlds

import hpc_llm
from hpc_llm.api.corpora import NotPreparedError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import read_json, read_json_lines
from hpc_llm.records.run import RunPaths
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.tasks.prepare import request_of

pytestmark = pytest.mark.train

TALK = [
    {"content": "Name a colour.", "role": "user"},
    {"content": "Blue.", "role": "assistant"},
    {"content": "And another?", "role": "user"},
    {"content": "Red.", "role": "assistant"},
]
ROWS: dict[str, tuple[str, Sequence[str], Mapping[str, Any]]] = {
    "wikitext-2-raw-v1": ("wikitext-2-raw-v1/{}-00000-of-00001.parquet", ("train", "validation", "test"), {"text": " = Robert <unk> = \n"}),
    "gsm8k": ("main/{}-00000-of-00001.parquet", ("train", "test"), {"question": "Two and three?", "answer": "2+3 = <<2+3=5>>5\n#### 5"}),
    "glue/sst2": ("sst2/{}-00000-of-00001.parquet", ("train", "validation", "test"), {"sentence": "a fine film ", "label": 1, "idx": 0}),
    "mosaicml/instruct-v3": ("data/{}-00000-of-00001-9f2d8a1c.parquet", ("train", "test"), {"prompt": "### Instruction:\nSay it.\n\n### Response:\n", "response": "It.", "source": "dolly_hhrlhf"}),
    "dialogsum": ("dialogsum.{}.jsonl", ("train", "dev", "test"), {"fname": "train_0", "dialogue": "#Person1#: Hi.\n#Person2#: Hi, hi.", "summary": "They greet.", "topic": "greeting"}),
    "smangrul/ultrachat-10k-chatml": ("data/{}-00000-of-00001-4b7e6f3a.parquet", ("train", "test"), {"prompt": "Name a colour.", "prompt_id": "ab12", "messages": TALK, "text": "…"}),
}  # fmt: skip
"""Where the files of a set lie, for which splits, and a row with all its fields."""
LEARNED = {
    "wikitext-2-raw-v1": 255,
    "gsm8k": len(" 2+3 = <<2+3=5>>5\n#### 5|"),
    "glue/sst2": len(" positive|"),
    "mosaicml/instruct-v3": len("It.|"),
    "dialogsum": len("They greet.|"),
    "smangrul/ultrachat-10k-chatml": len("Blue.<|im_end|>\nRed.<|im_end|>\n|"),
}
"""Tokens that are predicted in a sequence, here bytes: of a text all but the first, else answers with their ends."""
COUNT, STEPS = 24, 4


def copied(folder: Path, name: str) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    where, splits, row = ROWS[name]
    for split in splits:
        file = folder / where.format(split)
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".jsonl":
            file.write_text((json.dumps(row) + "\n") * COUNT)
        else:
            parquet.write_table(pa.Table.from_pylist([dict(row)] * COUNT), file)
    return folder


def planned(source: str) -> Plan:
    """As `submit` does it: what is not prepared yet is prepared as the refusal says."""
    asked = {"cluster": "local", "task": "finetune", "method": "lora", "model": "tiny", "data": [source]}
    size = {"steps": STEPS, "warmup_steps": 1, "sequence_length": 256, "micro_batch_size": 2, "gpus_per_node": 0}
    for _ in range(2):
        try:
            return hpc_llm.plan(**asked, **size)[0].plan
        except NotPreparedError as lack:
            [preparation] = hpc_llm.plan(**lack.preparation)
            assert preparation.plan.training.caches is not None
            prepare(request_of(preparation.plan), Path(preparation.plan.training.caches), lambda text: None)
    raise AssertionError(f"{source}: it asks for data again")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, worlds: Worlds) -> Path:
    """The folder with a run for each set, trained one after another by one process."""
    folder = tmp_path_factory.mktemp("sets")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        plans = {name: planned(f"{name}={copied(folder / 'copies' / name, name)}") for name in ROWS}
    wanted = {name.replace("/", "-"): {"plan": plan.to_dict(), "mask": False} for name, plan in plans.items()}
    (folder / "request.json").write_text(json.dumps(wanted))
    worlds.must_run("two_ranks", folder, 1)
    return folder


@pytest.mark.parametrize("name", ROWS)
def test_a_model_learns_from_each_set(tuned: Path, name: str) -> None:
    run = RunPaths(tuned / name.replace("/", "-"))
    result = read_json(run.result) or {}
    assert result["outcome"] == "COMPLETED", result
    assert len(list(read_json_lines(run.steps))) == STEPS and result["loss_last"] < result["loss_first"]
    assert result["trained_tokens"] == STEPS * result["global_batch_size"] * LEARNED[name]
    assert result["eval_tokens"] > 0 and result["perplexity"] > 1
