"""`hpc-llm estimate` and the function: what they answer, and how they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

import hpc_llm
import hpc_llm.cli
from hpc_llm.cli import run
from hpc_llm.errors import PlanError, RequestError
from hpc_llm.estimating.parts import Fit
from hpc_llm.estimating.shapes import sizes_of_model

DELTA = ("estimate", "--cluster=delta", "--gpus-per-node=4")
CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}
"""Qwen3-0.6B's: 28 x (2 x 1024 x 2048 + 2 x 1024 x 1024 + 3 x 1024 x 3072) and its embedding."""


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints."""

    def call(*words: str) -> str:
        assert run(list(words)) == 0
        return capsys.readouterr().out

    return call


def folder(place: Path, **changes: Any) -> str:
    values = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    (place / "config.json").write_text(json.dumps(values))
    return str(place)


def test_one_screen_of_eighty_columns_says_all_of_it(said: Callable[..., str]) -> None:
    text = said(*DELTA, "--method=z3", "--model=llama2-7b")
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 30
    for words in (
        "4 x A100-SXM4-40GB",
        "optimizer states",
        "host, each node",
        "largest micro batch",
        "fewest GPUs",
        "verdict: fits",
    ):
        assert words in text


def test_the_documents_keys_are_those_that_scripts_rely_on(said: Callable[..., str]) -> None:
    document = json.loads(said(*DELTA, "--method=z2", "--model=llama2-7b", "--json"))
    assert document["verdict"] == "does_not_fit"
    device = document["device"]
    assert sum(device["breakdown"].values()) == device["peak_allocated_bytes"]
    assert device["capacity_bytes"] == 40 * 2**30
    assert document["interval"]["device_bytes"][0] > device["capacity_bytes"]
    assert sum(document["host"]["breakdown"].values()) == document["host"]["peak_bytes"]
    assert document["largest_micro_batch_size"] == 0
    assert document["fewest_gpus"] > 4


def test_all_methods_on_all_clusters_are_ranked(said: Callable[..., str]) -> None:
    text = said("estimate", "--cluster=all", "--method=all", "--model=llama2-7b")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    verdicts = [line for line in lines if line.startswith(("delta", "mi210", "taiwania2"))]
    assert len(verdicts) > 30
    first_bad = next(number for number, line in enumerate(verdicts) if "does not fit" in line)
    assert all("does not fit" in line for line in verdicts[first_bad:])
    assert "not taiwania2 bf16:" in text  # V100 has none
    found = hpc_llm.estimate(cluster="all", method="all", model="llama2-7b")
    off = max(one.time.interval[1] / one.time.step_time_s for one in found if one.time)
    assert f"up to {off:.1f} times longer or shorter" in " ".join(text.split())
    assert sum(one.refused is not None for one in found) == text.count("not taiwania2")


def test_a_table_says_of_a_host_what_the_estimate_of_one_run_says(said: Callable[..., str]) -> None:
    """What fits the GPUs may need more of a node than its profile tells of."""
    asked = ("estimate", "--model=llama3.1-70b")
    [one] = hpc_llm.estimate(cluster="rtx5090", method="z3o", model="llama3.1-70b")
    assert one.verdict is Fit.FITS and one.unsaid is not None
    assert f"verdict: fits the GPUs; {one.unsaid}\n" in said(*asked, "--cluster=rtx5090", "--method=z3o")
    text = said(*asked, "--cluster=rtx5090,mi210", "--method=z3o,z2o")
    assert "fits the GPUs of rtx5090 z3o, mi210 z3o: nobody says whether a node's host does" in " ".join(text.split())
    rows = [line for line in text.splitlines() if line.startswith(("rtx5090", "mi210"))]
    assert ["fits GPUs" in row for row in rows] == [True, False, True, False]
    every = hpc_llm.estimate(cluster="all", method="z3o,q", model="llama2-7b")
    known = [one.unsaid is None for one in every if one.verdict is Fit.FITS and not one.refused]
    assert known == sorted(known, reverse=True) and len(set(known)) == 2
    [small] = hpc_llm.estimate(cluster="rtx5090", method="q", model="llama3.2-3b")
    assert small.unsaid is None  # hardly any node lacks so little


def test_nobody_is_asked_for_an_account_to_estimate() -> None:
    [found] = hpc_llm.estimate(cluster="taiwania2", method="z3", model="llama2-7b")
    assert found.verdict is Fit.FITS
    assert found.gpus == 8


def test_the_fewest_gpus_are_the_same_from_wherever_one_asks() -> None:
    """Each number of GPUs has the memory of the node that goes with it."""
    asked = {"cluster": "delta", "method": "z3o+r", "model": "llama2-7b", "sequence_length": 512}
    found = [hpc_llm.estimate(**asked, gpus_per_node=gpus)[0] for gpus in (1, 2, 4)]
    [fewest] = {one.fewest_gpus for one in found}
    for one in found:
        assert fewest is not None and (one.verdict is Fit.FITS) == (one.gpus >= fewest)


@pytest.mark.parametrize(
    ("cluster", "method", "model"),
    [
        ("delta", "z3", "llama2-70b"),
        ("delta", "z1", "llama2-7b"),
        ("taiwania2", "z3", "llama2-13b"),
    ],
)
def test_the_fewest_gpus_are_those_of_the_first_number_of_nodes_that_fits(
    cluster: str, method: str, model: str
) -> None:
    """Whatever number that is, and what the same answer says of the plan itself agrees with it."""
    asked = {"cluster": cluster, "method": method, "model": model, "sequence_length": 1024}
    found = {
        nodes: hpc_llm.estimate(**asked, nodes=nodes)[0] for nodes in range(1, 6 if cluster == "taiwania2" else 14)
    }
    least = next((nodes for nodes, one in found.items() if one.verdict is Fit.FITS), None)
    for one in found.values():
        if least is None:
            assert one.fewest_gpus is None or one.fewest_gpus > max(every.gpus for every in found.values())
        else:
            per_node = found[1].gpus
            assert one.fewest_gpus is not None and -(-one.fewest_gpus // per_node) == least, (one.gpus, one.fewest_gpus)
            assert one.verdict is not Fit.FITS or one.gpus >= one.fewest_gpus


def test_a_plan_that_fits_on_gpus_of_several_nodes_needs_no_more_than_it_has() -> None:
    """Where each node has one rank the host of each holds less than where one has several."""
    [found] = hpc_llm.estimate(cluster="delta", method="z3o+r", model="llama2-13b", nodes=3, gpus_per_node=1)
    assert found.fewest_gpus is not None
    assert found.verdict is not Fit.FITS or found.fewest_gpus <= 3


def test_several_runs_keep_the_order_of_the_request() -> None:
    found = hpc_llm.estimate(cluster="delta", method=["z3", "ddp", "q"], model="llama3.2-3b")
    assert [one.method for one in found] == ["z3", "ddp", "q"]


def test_runs_of_a_study_are_called_as_it_calls_them() -> None:
    found = hpc_llm.estimate({"cluster": "delta", "method": "z3", "matrix": {"micro-batch-size": [1, 64]}})
    assert [one.run for one in found] == ["micro_batch_size=1", "micro_batch_size=64"]
    assert [one.verdict for one in found] == [Fit.FITS, Fit.DOES_NOT_FIT]


def test_a_family_that_nobody_measured_is_counted_with_a_note(tmp_path: Path) -> None:
    [found] = hpc_llm.estimate(cluster="delta", method="ddp", model=folder(tmp_path), set=["weights=random"])
    assert found.memory is not None
    assert found.memory.device is not None
    assert any("qwen3" in note for note in found.memory.notes)
    layers = 28 * (2 * 1024 * 2048 + 2 * 1024 * 1024 + 3 * 1024 * 3072 + 2 * 1024)
    assert found.memory.device.breakdown["weights"] == 2 * (layers + 151936 * 1024 + 1024)
    assert found.memory.device.high > 1.5 * found.memory.device.low


def test_what_config_json_leaves_to_its_family_is_counted_as_transformers_has_it(tmp_path: Path) -> None:
    """gpt_neox has no gate in its MLP; Gemma 2 ties its head without a word, where Qwen3 says it; a tie that is said stands."""

    def parameters(**changes: Any) -> int:
        bare = {"tie_word_embeddings": None, "num_key_value_heads": None, "head_dim": None}
        return sizes_of_model(folder(tmp_path, **{**bare, **changes})).parameters

    pythia = {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 50304,
    }
    assert parameters(model_type="gpt_neox", **pythia) == pytest.approx(1_414_647_808, rel=2e-3)
    gemma = {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 256000,
    }
    assert parameters(model_type="gemma2", **gemma) == pytest.approx(2_614_341_888, rel=2e-3)
    untied = parameters(model_type="gemma2", tie_word_embeddings=False, **gemma)
    assert untied - parameters(model_type="gemma2", **gemma) == 256000 * 2304
    assert parameters(model_type="starcoder2") < parameters(model_type="qwen3", tie_word_embeddings=True)


def test_a_family_of_which_nothing_is_known_is_told_so(tmp_path: Path) -> None:
    [found] = hpc_llm.estimate(
        cluster="delta", method="ddp", model=folder(tmp_path, model_type="of_next_year"), set=["weights=random"]
    )
    assert found.memory is not None
    assert any(
        "the family of_next_year: not known here, and counted as a decoder" in note for note in found.memory.notes
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "youtu"}, "is of the family youtu, whose layers hold others than Llama's"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0, it must be a whole number from 1 to "),
        ({"num_key_value_heads": -1}, "num_key_value_heads is -1"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'"),
        ({"hidden_size": None}, "does not say hidden_size"),
        ({"vocab_size": 10**15}, "vocab_size is 1000000000000000, it must be a whole number from 1 to "),
        ({"num_experts": 64}, "mixture of experts"),
        ({"model_type": "mixtral", "num_local_experts": 8}, "mixture of experts"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M-M-M*-M"}, "other kinds than attention and MLP"),
        ({"model_type": "recurrent_gemma", "lru_width": 4096}, "other kinds than attention and MLP"),
        ({"model_type": "zamba2", "num_mem_blocks": 2, "mamba_expand": 2}, "other kinds than attention and MLP"),
        ({"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}, r"other kinds .*\(conv\)"),
        ({"model_type": "qwen3_5_text", "layer_types": ["linear_attention", "full_attention"]}, "other kinds"),
        ({"model_type": "llama", "num_attention_heads": 0, "head_dim": None}, "num_attention_heads is 0"),
    ],
)
def test_nonsense_is_refused_in_words(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises((RequestError, PlanError), match=words):
        hpc_llm.estimate(cluster="delta", method="z3", model=folder(tmp_path, **changes), set=["weights=random"])


def test_layers_of_sliding_attention_are_of_the_usual_kind(tmp_path: Path) -> None:
    """Gemma 2 and Qwen2 name their layers so."""
    named = folder(tmp_path, model_type="gemma2", layer_types=["sliding_attention", "full_attention"] * 14)
    [found] = hpc_llm.estimate(cluster="delta", method="ddp", model=named, set=["weights=random"])
    assert found.memory is not None


def test_what_the_site_charges_stands_beside_the_hours(said: Callable[..., str]) -> None:
    [found] = hpc_llm.estimate(cluster="delta", partition="gpuA100x8", method="z3", model="llama2-7b")
    assert found.time is not None and found.time.cost is not None
    assert found.time.cost.unit == "SU"
    assert found.time.cost.amount == pytest.approx(1.5 * found.time.gpu_hours)
    assert " SU" in said(*DELTA, "--method=z3", "--model=llama2-7b")
    [unsaid] = hpc_llm.estimate(cluster="taiwania2", method="z3", model="llama2-7b")
    assert unsaid.time is not None and unsaid.time.cost is None


def test_profiling_takes_its_time_too() -> None:
    asked = {"cluster": "delta", "method": "z3", "model": "llama2-7b", "gpus_per_node": 1}
    plain, *profiled = (
        hpc_llm.estimate(**asked, **more)[0].time for more in ({}, {"profile": "torch"}, {"profile": "ncu"})
    )
    assert plain is not None
    for one in profiled:
        assert one is not None and one.run_time_s > plain.run_time_s + 4 * plain.step_time_s
        assert one.run_interval[0] >= plain.run_interval[0] and one.run_interval[1] > plain.run_interval[1] + 60


def test_the_steps_counted_for_profiling_are_those_that_the_worker_takes() -> None:
    from hpc_llm.estimating import walltime

    source = (Path(hpc_llm.__file__).parent / "worker/profiling/window.py").read_text()
    taken = sum(int(number) for number in re.findall(r"^(?:STEPS|WARM_UP) = (\d+)$", source, re.MULTILINE))
    assert taken == walltime._PROFILED


def test_how_far_a_plan_goes_is_said_of_the_engine_that_it_has_then() -> None:
    """With a larger batch, or fewer GPUs, whole parameters no longer fit beside it, and an engine that needs less is taken."""
    asked = {"cluster": "delta", "partition": "gpuA100x8", "method": "z3", "model": "llama2-7b"}
    [small] = hpc_llm.estimate(**asked)
    assert small.largest_micro_batch is not None and small.largest_micro_batch > 8
    [largest] = hpc_llm.estimate(**asked, micro_batch_size=small.largest_micro_batch)
    [beyond] = hpc_llm.estimate(**asked, micro_batch_size=small.largest_micro_batch + 1)
    assert (largest.verdict is Fit.FITS, beyond.verdict is Fit.FITS) == (True, False)
    for one in (largest, beyond):
        assert one.largest_micro_batch == small.largest_micro_batch
    [four] = hpc_llm.estimate(**asked, micro_batch_size=4)
    [fewest] = hpc_llm.estimate(**asked, micro_batch_size=4, gpus_per_node=four.fewest_gpus)
    assert fewest.verdict is Fit.FITS and fewest.gpus == four.fewest_gpus
    [kept] = hpc_llm.estimate(**asked, set=["engine=flat"])
    assert kept.largest_micro_batch is not None and kept.largest_micro_batch < small.largest_micro_batch


def test_all_clusters_are_asked_about_one_model(said: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    """The profiles are used to different ones, whose speeds say nothing of the clusters."""
    assert hpc_llm.cli.run(["estimate", "--cluster=all", "--method=q"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("llama2-7b, 1 x 350 on each GPU\n")
    assert "no model is named: each cluster is asked about llama2-7b" in shown.err
    assert {one.model for one in hpc_llm.estimate(cluster="all", method="q")} == {"llama2-7b"}
    two = said("estimate", "--cluster=delta,runpod", "--method=q")
    assert "llama3.2-1b" in two and "llama2-7b" in two


def test_a_table_of_runs_on_the_cpu_names_no_gpu(said: Callable[..., str]) -> None:
    shown = said("estimate", "--cluster=local", "--method=ddp,lora", "--model=tiny", "--set=engine=plain")
    assert (
        shown.startswith("tiny, 1 x ")
        and "on the CPU\n" in shown
        and "\nhost: GiB of each node\n" in shown
        and "GPU" not in shown
    )


def test_what_is_said_of_data_that_nobody_has_prepared_hinders_no_estimate(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("ask,say\n1+1?,2\n")
    asked = {"cluster": "delta", "method": "z3", "model": "llama2-7b", "task": "finetune", "data": [str(source)]}
    [found] = hpc_llm.estimate(
        **asked,
        epochs=2,
        set=["columns.prompt=ask", "columns.completion=say", "packing=padding", "weights=random"],
        logs=tmp_path,
    )
    assert found.verdict is Fit.FITS
    assert any("not prepared yet" in note for note in found.notes)
    assert any("how many steps the epochs are: the run's time is that of 1000" in note for note in found.notes)


STUDIES = [one for one in sorted((ROOT / "experiments").glob("*.yaml")) if one.stem != "bdml-climate"]
"""But the one whose data are files of the user's own, which have to be there."""


@pytest.mark.parametrize("file", STUDIES, ids=lambda one: one.stem)
def test_each_study_of_the_project_is_estimated_before_its_data_are_there(file: Path, said: Callable[..., str]) -> None:
    """What trains nothing is named beside the rest."""
    text = said("estimate", str(file))
    assert max(map(len, text.splitlines())) <= 80
    assert "verdict" in text


def test_parts_of_a_step_that_are_more_than_it_are_said_to_overlap(said: Callable[..., str]) -> None:
    """Python asks for operations while the GPU computes; where one of them hides nothing, the parts are the step."""
    line = "  Python asks while the GPU computes, so the parts are more than the step"
    assert line in said(*DELTA, "--model=tinyllama-1.1b", "--method=q").splitlines()
    assert line not in said("estimate", "--cluster=mi300x", "--model=tiny", "--method=z3").splitlines()
