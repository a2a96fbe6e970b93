"""Where profiles are found, how their YAML is read, and what is said about a wrong one."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from hpc_llm.cli import run
from hpc_llm.errors import Notice, ProfileError
from hpc_llm.planning.method import load_method, method_names, parse_method
from hpc_llm.site.cluster import Cluster, cluster_names, load_cluster, parse_cluster
from hpc_llm.site.parts import Gpu
from hpc_llm.site.profiles import bundled, find_file, list_files, read_profile, user_cache, user_config, user_state
from hpc_llm.text.yaml_text import parse_yaml, read_yaml

CLUSTER_FILES = sorted((ROOT / "clusters").glob("*.yaml"))
METHOD_FILES = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CLUSTER_FILES, ids=lambda p: p.stem)
def test_every_shipped_cluster_is_valid(path: Path) -> None:
    cluster = parse_cluster(read_yaml(path), path)
    assert cluster.sources and cluster.title
    if cluster.status.state == "verify":
        assert cluster.status.note or cluster.unverified


@pytest.mark.parametrize("path", METHOD_FILES, ids=lambda p: p.stem)
def test_every_shipped_method_is_valid(path: Path) -> None:
    method = parse_method(read_yaml(path), path)
    assert "\n" not in method.description.strip()


def test_the_four_clusters_and_the_methods_are_there() -> None:
    assert {"taiwania2", "mi210", "delta", "local"} <= set(cluster_names())
    wanted = {"z2o", "z3", "z3o", "q", "z2", "z1", "ddp", "z2o-hpc2", "z3-hpc2", "z3o-hpc2", "q-hpc2"}
    assert wanted <= set(method_names())


# --- YAML -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("24:00:00", "24:00:00"),  # 86400 in YAML 1.1
        ("1:30", "1:30"),
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("y", "y"),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("1e9", 1e9),  # text in YAML 1.1
        ("5e-8", 5e-8),
        ("2E+3", 2000.0),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("1_000", "1_000"),
        ("010", "010"),  # 8 in YAML 1.1
        ("0x10", "0x10"),
        ("2026-09", "2026-09"),
        ("2026-09-01", "2026-09-01"),  # a date in YAML 1.1
        ("12e03", 12000.0),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ("=", "="),
        ("[a, 1, 1e3]", ["a", 1, 1000.0]),
    ],
)
def test_scalars_mean_what_they_look_like(text: str, value: Any) -> None:
    found = parse_yaml(f"key: {text}", "here")["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml, line 3: not valid YAML: key 'a' comes twice."),
        ("a:\n  x: 1\n  x: 2\n", "line 3: not valid YAML: key 'x' comes twice"),
        ("a: {x: 1, x: 2}\n", "line 1: not valid YAML: key 'x' comes twice"),
        ("a: [1, 2\nb: 3\n", "not valid YAML"),
        ("? [a, b]\n: 1\n", "a key must be a name"),
        ("? {a: b}\n: 1\n", "a key must be a name"),
        ("a: !!python/object/apply:os.system ['true']\n", "is not known here: write plain values"),
        ("a: &x [*x\n", "not valid YAML"),
        ("a: \x01\n", "not valid YAML"),
        ("", "is empty, a mapping of keys is needed"),
        ("- a\n- b\n", "holds a list, a mapping of keys is needed"),
        ("just words\n", "holds text, a mapping of keys is needed"),
        ("5\n", "holds a single value, a mapping"),
    ],
)
def test_what_is_no_mapping_is_refused_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        read_yaml(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_merge_keys_may_be_overridden_and_are_no_duplicates() -> None:
    text = "base: &b {x: 1, y: 2}\nthis: {<<: *b, x: 3}\nthat: &c {<<: *b, x: 4}\nlast: {<<: *c, y: 5}\n"
    value = parse_yaml(text, "here")
    assert value["this"] == {"x": 3, "y": 2}
    assert value["last"] == {"x": 4, "y": 5}
    several = parse_yaml("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: [*a, *b], z: 5, w: 6}\n", "here")
    assert several["c"] == {"x": 1, "y": 2, "z": 5, "w": 6}
    assert several["a"] == {"x": 1, "y": 2}  # what is merged stays as it is
    for wrong in ("a: {<<: 3}\n", "a: {<<: [{x: 1}, 3]}\n"):
        with pytest.raises(ProfileError, match="line 1: not valid YAML: << takes a mapping, or a list of mappings"):
            parse_yaml(wrong, "here")
    with pytest.raises(ProfileError, match="key 'x' comes twice"):
        parse_yaml("a: &a {x: 1}\nb: {<<: *a, x: 2, x: 3}\n", "here")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_yaml(path)


# --- the search path ------------------------------------------------------------------------------------------------


def own_cluster(folder: Path, file: str, **values: Any) -> Path:
    """A profile `file` in `folder`/clusters that extends the bundled `local`."""
    import yaml

    path = folder / "clusters" / f"{file}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"extends": "local", **values}))
    return path


def test_the_working_directory_wins_over_the_users_folder_and_that_over_the_bundled(own_folder: Path) -> None:
    assert load_cluster("local").title == "This machine, GPU or CPU, no modules"
    own_cluster(user_config(), "local", title="mine")
    assert load_cluster("local").title == "mine"
    own_cluster(own_folder, "local", title="here")
    assert load_cluster("local").title == "here"
    assert find_file("clusters", "local") == own_folder / "clusters" / "local.yaml"
    assert cluster_names().count("local") == 1


def test_the_users_folders_follow_xdg(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_config() == own_folder.parent / "config" / "hpc-llm"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert user_config() == own_folder.parent / "home" / ".config" / "hpc-llm"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert user_state() == own_folder.parent / "state" / "hpc-llm"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert user_state() == own_folder.parent / "home" / ".local" / "state" / "hpc-llm"
    assert user_config() == own_folder.parent / "home" / ".config" / "hpc-llm"
    assert user_cache() == own_folder.parent / "home" / ".cache" / "hpc-llm"


def test_an_own_method_wins(own_folder: Path) -> None:
    (own_folder / "configs").mkdir()
    (own_folder / "configs" / "z3.yaml").write_text("extends: z3\ndescription: mine\noptimizer: {lr: 0.5}\n")
    assert load_method("z3").description == "mine"
    assert load_method("z3").optimizer.lr == 0.5
    assert load_method("z3").optimizer.type == "AdamW"


def announced(load: Callable[[], Any]) -> list[str]:
    """What is said of files that were found in the working directory."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        load()
    return [str(one.message) for one in said if one.category is Notice]


def test_a_file_of_the_working_directory_is_announced_with_what_it_hides(own_folder: Path) -> None:
    assert announced(lambda: load_cluster("local")) == []
    path = own_cluster(own_folder, "local", title="here")
    assert announced(lambda: load_cluster("local")) == [
        f"cluster local is that of {path}, in place of the one that hpc-llm brings"
    ]
    own_cluster(user_config(), "local", title="mine")
    assert announced(lambda: load_cluster("local")) == [
        f"cluster local is that of {path}, in place of your own",
    ]
    other = own_cluster(own_folder, "site", title="new")
    assert announced(lambda: load_cluster("site")) == [
        f"cluster site is that of {other}",
        f"cluster local is that of {path}, in place of your own",  # which it extends
    ]


def test_a_file_of_the_working_directory_that_changes_nothing_is_not_announced(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_folder / "configs").mkdir()
    shutil.copy(ROOT / "configs" / "z3.yaml", own_folder / "configs")
    assert announced(lambda: load_method("z3")) == []
    monkeypatch.chdir(ROOT)
    assert announced(lambda: (load_method("z3+r"), load_cluster("local"))) == []


def test_a_new_cluster_is_one_file(own_folder: Path) -> None:
    own_cluster(own_folder, "lab", title="the lab", gpu={"vendor": "none"})
    cluster = load_cluster("lab")
    assert (cluster.name, cluster.title, cluster.scheduler) == ("lab", "the lab", "local")
    assert "lab" in cluster_names()


def test_extends_merges_mappings_and_replaces_the_rest(own_folder: Path) -> None:
    (own_folder / "clusters").mkdir()
    (own_folder / "clusters" / "t3.yaml").write_text(
        "extends: taiwania2\n"
        "account: {default: ACD7}\n"
        "prelude: {load: [one]}\n"
        "partitions: [{name: only, max_time: 01:00:00, default: true}]\n"
    )
    (own_folder / "clusters" / "t4.yaml").write_text("extends: t3\ntitle: four\n")
    base, cluster = load_cluster("taiwania2"), load_cluster("t4")
    assert cluster.account.default == "ACD7" and cluster.account.required
    assert cluster.prelude.load == ["one"] and cluster.prelude.start == base.prelude.start
    assert [p.name for p in cluster.partitions] == ["only"]
    assert cluster.name == "t4"


def test_another_gpu_inherits_nothing_of_the_old_one(own_folder: Path) -> None:
    (own_folder / "clusters").mkdir()
    profile = own_folder / "clusters" / "mine.yaml"
    profile.write_text("extends: runpod\ngpu: {model: Tesla T4}\n")
    with pytest.raises(ProfileError, match="arch, memory_gib and capabilities are missing"):
        load_cluster("mine")
    profile.write_text(
        "extends: runpod\ngpu: {model: Tesla T4, arch: sm_75, memory_gib: 15.0, capabilities: "
        "{bf16: false, tf32: false, flash_attention_2: false, int8: true, nf4: true}}\n"
    )
    assert (
        load_cluster("mine").gpu.peak_tflops == {}
        and load_cluster("mine").gpu.per_node == load_cluster("runpod").gpu.per_node
    )
    profile.write_text(
        "extends: runpod\ngpu: {model: AMD Instinct MI250X, arch: gfx90a, memory_gib: 64.0, capabilities: "
        "{bf16: true, flash_attention_2: true, int8: false, nf4: false}}\n"
    )
    with pytest.raises(ProfileError, match=r"gfx90a is AMD's, and vendor is 'nvidia'.*gpu\.vendor is inherited from"):
        load_cluster("mine")
    profile.write_text("extends: runpod\ngpu: {per_node: 2}\n")
    assert load_cluster("mine").gpu.peak_tflops == load_cluster("runpod").gpu.peak_tflops


@pytest.mark.parametrize(
    ("site", "account", "rest"),
    [("taiwania2", "ACD110018", ""), ("delta", "x-delta-gpu", "request: {gpu_style: none, memory: omit}\n")],
)
def test_nodes_without_gpus_inherit_nothing_of_a_card(
    site: str, account: str, rest: str, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever precision is advised for the CPU is one that passes."""
    (own_folder / "clusters").mkdir()
    (own_folder / "clusters" / "cpus.yaml").write_text(f"extends: {site}\ngpu: {{vendor: none}}\n{rest}")
    assert load_cluster("cpus").gpu == Gpu(vendor="none", per_node=load_cluster(site).gpu.per_node)
    asked = ["render", "--cluster", "cpus", "--method", "ddp", "--model", "tiny", "--account", account]
    assert run([*asked, "--set", "precision=fp16"]) == 2
    advised = re.findall("bf16|fp32", capsys.readouterr().err.split("Use ")[-1])
    assert advised and all(run([*asked, "--set", f"precision={one}"]) == 0 for one in advised)


@pytest.mark.parametrize(
    ("wrong", "said", "right"),
    [
        ("gpu: {per_node: 0}", "gpu.vendor is inherited from", "gpu: {vendor: none}\nrequest: {gpu_style: none, memory: omit}"),
        ("prelude: {module_system: none, start: none, load: []}", "prelude.init is inherited from",
         "prelude: {module_system: none, start: none, load: [], init: null, load_multi_node: null}"),
        ("request: {extra: [--constraint=x]}", "request.constraint is inherited from", "request: {constraint: null, extra: [--constraint=x]}"),
        ("launch: {allowed: [mpirun]}", "launch.single_node is inherited from", "launch: {allowed: [mpirun], single_node: mpirun, multi_node: mpirun}"),
    ],
)  # fmt: skip
def test_a_rule_names_the_file_from_which_a_field_is_inherited(
    wrong: str, said: str, right: str, own_folder: Path
) -> None:
    """Delta as a site of one's own; what is advised can be written."""
    (own_folder / "clusters").mkdir()
    file = own_folder / "clusters" / "mine.yaml"
    file.write_text(f"extends: delta\n{wrong}\n")
    with pytest.warns(Notice), pytest.raises(ProfileError) as caught:
        load_cluster("mine")
    assert str(caught.value).startswith(f"{file}: ") and f"{said} {bundled('clusters') / 'delta.yaml'}" in str(
        caught.value
    )
    file.write_text(f"extends: delta\n{right}\n")
    with pytest.warns(Notice):
        assert load_cluster("mine").name == "mine"


def test_a_wrong_value_that_is_inherited_is_told_where_it_stands(own_folder: Path) -> None:
    (own_folder / "clusters").mkdir()
    (own_folder / "clusters" / "uni.yaml").write_text("extends: local\nnode: {cpus: many}\n")
    (own_folder / "clusters" / "mine.yaml").write_text("extends: uni\ntitle: mine\n")
    with pytest.warns(Notice), pytest.raises(ProfileError, match=r"mine.yaml: 'node.cpus' is 'many'") as caught:
        load_cluster("mine")
    assert f"(node.cpus is inherited from {own_folder / 'clusters' / 'uni.yaml'}.)" in str(caught.value)


def test_null_takes_back_what_is_inherited_mappings_too(own_folder: Path) -> None:
    (own_folder / "clusters").mkdir()
    (own_folder / "clusters" / "uni.yaml").write_text("extends: local\nenv: {common: {A: x, B: y}}\npaths: {a: /b}\n")
    (own_folder / "clusters" / "mine.yaml").write_text("extends: uni\nenv: {common: {A: null}}\npaths: null\n")
    with pytest.warns(Notice):
        cluster = load_cluster("mine")
    assert cluster.env.common.get("B") == "y" and "A" not in cluster.env.common and cluster.paths == {}


def test_extends_that_leads_back_or_nowhere_is_told(own_folder: Path) -> None:
    folder = own_folder / "clusters"
    folder.mkdir()
    (folder / "a.yaml").write_text("extends: b\n")
    (folder / "b.yaml").write_text("extends: a\n")
    with pytest.raises(ProfileError, match=r"b\.yaml: extends: a extends itself in the end"):
        load_cluster("a")
    (folder / "c.yaml").write_text("extends: taiwania\n")
    with pytest.raises(ProfileError, match="extends: there is no cluster 'taiwania': did you mean 'taiwania2'"):
        load_cluster("c")


@pytest.mark.parametrize("name", ["../clusters/local", "/etc/passwd", "", ".", "a\nb", "$(id)"])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(ProfileError, match="there is no cluster"):
        load_cluster(name)


def test_a_wrong_name_lists_the_right_ones_and_the_next_step() -> None:
    with pytest.raises(ProfileError) as caught:
        load_cluster("taiwania")
    names = ", ".join(list_files("clusters"))
    assert str(caught.value) == (
        f"there is no cluster 'taiwania': did you mean 'taiwania2'? Valid: {names}. "
        "Add clusters/taiwania.yaml to make it one."
    )


def test_the_name_in_a_file_is_the_files_name(own_folder: Path) -> None:
    path = own_cluster(own_folder, "lab", name="other")
    with pytest.raises(ProfileError) as caught:
        load_cluster("lab")
    assert str(caught.value) == f"{path}: 'name' is 'other', it must be the file's name, 'lab'."


def test_a_cluster_parses_into_the_model() -> None:
    assert isinstance(load_cluster("delta"), Cluster)


def test_a_default_account_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clusters").mkdir()
    Path("clusters/mine.yaml").write_text("extends: taiwania2\naccount: {default: MST112345}\n")
    assert run(["clusters", "mine"]) == 0
    assert ["default:", "MST112345"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_what_cannot_be_read_or_is_refused_costs_one_line_and_not_the_list(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scratch = "extends: z3o\ndeepspeed: {zero_optimization: {offload_param: {device: nvme, nvme_path: /x}}}\n"
    for kind, bundled_name in (("configs", "z3"), ("clusters", "delta")):
        folder = own_folder / kind
        folder.mkdir()
        os.mkfifo(folder / "pipe.yaml")
        (folder / "nothing.yaml").symlink_to("not-there")
        (folder / "folder.yaml").mkdir()
        (folder / "bytes.yaml").write_bytes(b"\xff\xfe")
        (folder / "refused.yaml").write_text(
            scratch if kind == "configs" else "extends: delta\nenv: {file: $PWD/secrets}\n"
        )
        assert run(["methods" if kind == "configs" else "clusters"]) == 0
        done = capsys.readouterr()
        assert bundled_name in done.out
        for name in ("pipe", "nothing", "folder", "bytes", "refused"):
            [line] = [line for line in done.err.splitlines() if f"/{name}.yaml: " in line]
            why = {"refused": "", "nothing": "there is no such file"}.get(name, "cannot be read")
            assert name not in done.out and why in line


@pytest.mark.parametrize("kind", ["configs", "clusters"])
def test_what_is_listed_is_found_and_says_why_it_cannot_be_read(kind: str, own_folder: Path) -> None:
    (own_folder / kind).mkdir()
    os.mkfifo(own_folder / kind / "pipe.yaml")
    load: Callable[[str], Any] = load_method if kind == "configs" else load_cluster
    with pytest.raises(ProfileError, match=r"pipe\.yaml: cannot be read: it is no regular file"):
        load("pipe")


@pytest.mark.parametrize(("kind", "option"), [("clusters", "cluster"), ("configs", "method")])
def test_what_extends_an_unknown_name_is_no_choice_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / kind).mkdir()
    (tmp_path / kind / "mine.yaml").write_text("extends: mien\n")
    with pytest.raises(ProfileError) as refused:
        read_profile(kind, "mine")
    valid = str(refused.value).partition("Valid: ")[2]
    assert f"there is no {option} 'mien'" in str(refused.value) and valid and "mine" not in valid


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory_gib": 40960}, "40960 GiB are more than any GPU has; if these are MiB, write 40"),
        ({"memory_gib": 400}, "memory_gib is 400, and a A100-SXM4-40GB has about 40"),
        ({"peak_tflops": {"bf16": 3.12e14}}, "if these are FLOP/s, write 312"),
    ],
)
def test_amounts_of_another_unit_are_refused_with_the_likely_one(changes: dict[str, Any], said: str) -> None:
    path = bundled("clusters") / "delta.yaml"
    data = read_yaml(path)
    with pytest.raises(ProfileError) as caught:
        parse_cluster({**data, "gpu": {**data["gpu"], **changes}}, path)
    assert said in str(caught.value)
    with pytest.raises(ProfileError, match="256000 GB are more than any node has; if these are MB, write 256"):
        parse_cluster({**data, "node": {**data["node"], "mem_gb": 256000.0}}, path)
