"""What a profile lacks or has wrong is told with what is to stand there, in words of the file."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from hpc_llm.cli import run
from hpc_llm.errors import ProfileError
from hpc_llm.planning.method import Method, parse_method
from hpc_llm.planning.schema import json_schema
from hpc_llm.site.cluster import Cluster, parse_cluster
from hpc_llm.site.explained import FORMS
from hpc_llm.text.yaml_text import read_yaml

DELTA = read_yaml(ROOT / "clusters" / "delta.yaml")


def with_(place: str, value: Any) -> dict[str, Any]:
    """The data of a shipped profile with one place set."""
    data = copy.deepcopy(DELTA)
    holder: Any = data
    *parts, last = place.split(".")
    for part in parts:
        holder = holder[int(part)] if part.isdigit() else holder.setdefault(part, {})
    holder[last] = value
    return data


def told(data: dict[str, Any]) -> str:
    with pytest.raises(ProfileError) as caught:
        parse_cluster(data, "d.yaml")
    return str(caught.value)


def _all_keys(holder: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
        if isinstance(key, str):
            yield (*way, key)
        if isinstance(value, (dict, list)):
            yield from _all_keys(value, (*way, key))


@pytest.mark.parametrize("file", ["clusters/delta.yaml", "configs/q.yaml", "configs/z3.yaml"])
def test_each_missing_field_is_told_with_what_is_needed_there(file: str) -> None:
    whole, seen = read_yaml(ROOT / file), 0
    for *way, last in _all_keys(whole):
        data = copy.deepcopy(whole)
        holder: Any = data
        for part in way:
            holder = holder[part]
        del holder[last]
        try:
            (parse_cluster if file.startswith("clusters") else parse_method)(data, "d.yaml")
        except ProfileError as error:
            place = ".".join(map(str, (*way, last)))
            if f"'{place}' is missing" in str(error):
                seen += 1
                assert f"'{place}' is missing: " in str(error) and str(error).endswith(" is needed."), place
                assert "a value is needed" not in str(error)
    assert seen > 4


def test_names_that_can_stand_there_are_listed() -> None:
    data = with_("launch", {"single_node": "srun", "multi_node": "srun"})
    assert "'launch.allowed' is missing: a list of some of mpirun, python, srun, torchrun is needed." in told(data)
    data["status"] = {}
    missing = "These are missing: status.state (one of active, verify, retired), status.checked (YYYY-MM (as in 2026-11)), launch"
    assert missing in told(data)


def _patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (value for key, value in schema.items() if key in ("pattern", "format") and isinstance(value, str))
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _patterns(part)


@pytest.mark.parametrize("model", [Cluster, Method])
def test_every_pattern_has_its_words(model: Any) -> None:
    assert set(_patterns(json_schema(model))) <= set(FORMS)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("status.checked", "2026-11-26", "'status.checked' is '2026-11-26': YYYY-MM (as in 2026-11) is needed."),
        ("name", "uni 2", "'name' is 'uni 2': a name of a-z, 0-9, _ and - (as in my-cluster) is needed."),
        ("partitions.0.max_time", None, "'partitions.0.max_time' is null: a time as HH:MM:SS, D-HH:MM:SS or"),
        ("defaults.time", 4, "'defaults.time' is 4: a time as HH:MM:SS, D-HH:MM:SS or (in quotes) minutes is needed."),
        ("title", True, "'title' is true: text is needed; put it in quotes."),
        ("title", None, "'title' is null: text is needed."),
        ("gpu.vendor", "nvida", "valid are 'nvidia', 'amd', 'none' or 'auto': did you mean 'nvidia'?"),
        ("charge", {"per_gpu_hour": 1.0, "unit": "u" * 30}, "it may have at most 20 letters."),
        ("account", "MST1", "'account' is 'MST1': a mapping is needed, as in {default: MST1}, with some of the keys required,"),
        ("partitions", ["gpu"], "'partitions.0' is 'gpu': a mapping is needed, as in {name: gpu, max_time: ...}, with some of the keys name,"),
        ("partitions", {"gpu": "1:00:00"}, "'partitions': a list of mappings is needed, as in [{name: ..., max_time: ...}]."),
        ("qos", ["long"], "'qos.0' is 'long': a mapping is needed, as in {name: long}, with some of the keys name,"),
        ("gpu.arch", "sm80", "'gpu': arch is 'sm80', and those of vendor 'nvidia' are written as sm_80."),
        ("gpu.arch", "sm_70", "'gpu': arch is sm_70, and a A100-SXM4-40GB has sm_80. Write arch: sm_80, or the name of the other GPU."),
        ("gpu.model", "V100-SXM2-40GB", "arch is sm_80, and a V100-SXM2-40GB has sm_70."),
        ("account", {"default": ""}, "'account.default' is '': one line of text (left out where there is none) is needed."),
        ("request.constraint", "a\nb", "one line of text (left out where there is none) is needed."),
        ("gpu.peak_tflops", {"bf16": 0.0}, "'gpu.peak_tflops': bf16: 0 TFLOP/s are none: give the peak of the data sheet, or leave bf16 out."),
        ("prelude.load", ["cuda/12.6 miniforge3"], "and each is one entry. Write [cuda/12.6, miniforge3]."),
        ("prelude.load_multi_node", [""], "'prelude.load_multi_node.0' is '': no module is called so, and each is one entry. Leave it out."),
        ("prelude.profilers", {"nsys": "nsight "}, "'prelude.profilers.nsys' is 'nsight ': no module is called so"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_what_to_write(place: str, value: Any, said: str) -> None:
    assert said in told(with_(place, value))
    assert "validation" not in told(with_(place, value)) and "?." not in told(with_(place, value))


def test_a_limit_in_minutes_is_shown_as_a_time(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own_folder / "clusters").mkdir()
    text = 'extends: delta\nname: mine\npartitions: [{name: a, max_time: "48"}, {name: b, max_time: UNLIMITED}]\n'
    (own_folder / "clusters" / "mine.yaml").write_text(text)
    assert run(["clusters", "mine"]) == 0
    shown = capsys.readouterr().out
    assert "00:48:00" in shown and "UNLIMITED" in shown


def test_what_no_gpu_of_that_generation_can_is_refused() -> None:
    data = with_("gpu.model", "Tesla K80")
    data["gpu"]["arch"] = "sm_37"
    assert (
        "capabilities: bf16, tf32, flash_attention_2, int8 are true, which GPUs have from sm_80 on, and arch is sm_37. Write false"
        in told(data)
    )


@pytest.mark.parametrize("key", ["extend", "Extends", "inherits", "base"])
def test_a_misspelt_extends_is_told_alone(own_folder: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    (own_folder / "clusters").mkdir()
    (own_folder / "clusters" / "mine.yaml").write_text(f"{key}: delta\nname: mine\n")
    assert run(["clusters", "mine"]) == 2
    said = capsys.readouterr().err
    assert f"there is no key '{key}' in the top level: did you mean 'extends'?" in said and "missing" not in said


def test_a_limit_in_minutes_and_seconds_is_shown_as_a_time(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_folder / "clusters").mkdir()
    text = 'extends: delta\nname: mine\npartitions: [{name: a, max_time: "24:00"}]\n'
    (own_folder / "clusters" / "mine.yaml").write_text(text)
    assert run(["clusters", "mine"]) == 0
    assert "00:24:00" in capsys.readouterr().out
