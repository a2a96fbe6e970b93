"""A profile that is not found, or lacks what another card takes back, is told in one sentence that can be followed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpc_llm.errors import Notice, ProfileError
from hpc_llm.planning.method import load_method
from hpc_llm.site.cluster import load_cluster


def refused(name: str) -> str:
    with pytest.raises(ProfileError) as caught:
        load_cluster(name)
    return str(caught.value)


def write(name: str, text: str) -> Path:
    path = Path("clusters") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


# --- another card ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "lacking", "written"),
    [
        ("{model: H100}", "arch, memory_gib and capabilities are missing", "Write arch: sm_90, memory_gib: GiB"),
        ("{model: H100, arch: sm_90}", "memory_gib and capabilities are missing", "capabilities: {bf16: …, flash_"),
        ("{model: Some GPU, memory_gib: 80}", "arch and capabilities are missing", "Write arch: as in sm_80,"),
        (
            "{vendor: amd}",
            "model, arch, memory_gib and capabilities are missing",
            "Write model: the name that rocm-smi shows",
        ),
        ("{model: MI300X, vendor: amd}", "arch, memory_gib and capabilities", "Write arch: gfx942, memory_gib: GiB"),
    ],
)
def test_what_another_card_needs_is_told_at_once_and_not_as_inherited(
    gpu: str, lacking: str, written: str, own_folder: Path
) -> None:
    write("mine.yaml", f"extends: delta\ngpu: {gpu}\n")
    said = refused("mine")
    assert f"'gpu': {lacking}" in said and written in said
    assert re.search(
        r"Another gpu\.model or gpu\.vendor takes back what \S+/delta\.yaml says of its own card alone", said
    )
    assert not re.search(r"(arch|memory_gib|capabilities)[^()]* inherited", said)


def test_a_card_is_taken_back_through_several_files(own_folder: Path) -> None:
    write("uni.yaml", "extends: delta\ntitle: u\n")
    write("mine.yaml", "extends: uni\ngpu: {model: H100, arch: sm_90}\n")
    said = refused("mine")
    assert "memory_gib and capabilities are missing" in said and "delta.yaml says of its own card" in said


def test_a_fact_that_the_parent_lacks_too_is_not_told_as_taken_back(own_folder: Path) -> None:
    write("uni.yaml", "extends: local\ngpu: {vendor: nvidia}\n")
    said = refused("uni")
    assert "model, arch, memory_gib, capabilities and per_node are missing" in said and "takes back" not in said
    assert "Write model: the name that nvidia-smi shows" in said


# --- which file would make it one -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("a100", "Add clusters/a100.yaml to make it one."),
        ("my-cluster", "Add clusters/my-cluster.yaml to make it one."),
        ("A100", "Add clusters/a100.yaml to make it one, as a name has no capitals."),
        ("H100-box", "Add clusters/h100-box.yaml to make it one, as a name has no capitals."),
        ("Delta", ""),
        ("my.cluster", ""),
        ("größer", ""),
        ("-x", ""),
    ],
)
def test_the_file_that_is_advised_makes_the_name_one(name: str, step: str, own_folder: Path) -> None:
    said = refused(name)
    assert said.endswith(step) and ("Add " in said) == bool(step)
    if step:
        write(step.split()[1].partition("/")[2], "extends: delta\n")
        assert load_cluster(name.lower()).name == name.lower()


def test_a_file_with_a_name_that_none_can_have_is_told_as_that(own_folder: Path) -> None:
    write("Mine.yaml", "extends: delta\n")
    assert "'name' is 'Mine': a name of a-z" in refused("Mine")
    assert "(It is the name of the file: rename Mine.yaml.)" in refused("Mine")
    write("own.yaml", "extends: delta\nname: Own\n")
    assert "rename" not in refused("own")


# --- a file that lies elsewhere or ends otherwise -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hal", "hal.yml"])
def test_a_file_with_the_other_ending_is_told(name: str, own_folder: Path) -> None:
    path = write("hal.yml", "extends: delta\n")
    said = refused(name)
    assert f"there is no cluster 'hal': {path.absolute()} is there" in said and said.endswith("Rename it to hal.yaml.")
    mine = write("mine.yaml", "extends: hal\n").absolute()
    assert refused("mine").startswith(f"{mine}: extends: there is no cluster 'hal': {path.absolute()} is there")
    path.rename(path.with_suffix(".yaml"))
    assert load_cluster("hal").name == "hal"


@pytest.mark.parametrize("ending", [".yaml", ".yml"])
def test_a_file_of_the_working_directory_is_told(ending: str, own_folder: Path) -> None:
    Path(f"mycl{ending}").write_text("extends: delta\n")
    assert f"mycl{ending} of the working directory is not looked at. If it is one, put it into ./clusters/" in refused(
        "mycl"
    )
    assert "mycl.yaml, and name it mycl." in refused(f"./mycl{ending}")
    Path(f"z9{ending}").write_text("extends: z3\ndescription: mine\n")
    with pytest.raises(ProfileError, match=rf"z9\{ending} of the working directory .* ./configs/ or \S+ as z9.yaml"):
        load_method("z9")


@pytest.mark.filterwarnings("error::hpc_llm.errors.Notice")
def test_what_is_found_is_not_told_as_misplaced(own_folder: Path) -> None:
    Path("delta.yaml").write_text("x: 1\n")
    assert load_cluster("delta").name == "delta"


def test_a_file_with_the_other_ending_is_told_where_a_weaker_one_is_taken(own_folder: Path) -> None:
    """The job is another than the one asked for, where a file that should extend a shipped one is passed over."""
    path = write("delta.yml", "extends: delta\n")
    said = f"cluster delta is that of .*/delta.yaml: {path.absolute()} is not read, .*rename it to delta.yaml"
    with pytest.warns(Notice, match=said):
        assert load_cluster("delta").name == "delta"
    write("mine.yaml", "extends: delta\n")
    with pytest.warns(Notice, match=said):
        load_cluster("mine")
    Path("configs").mkdir()
    Path("configs/z3.yml").write_text("extends: z3\noptimizer: {weight_decay: 0.1}\n")
    with pytest.warns(Notice, match=r"method z3 is that of .*/z3\.yaml: \S+/configs/z3\.yml is not read"):
        assert load_method("z3").optimizer.weight_decay == 0
    path.rename(path.with_suffix(".yaml"))
    with pytest.warns(Notice) as told:
        load_cluster("delta")
    assert not any("is not read" in str(one.message) for one in told)
