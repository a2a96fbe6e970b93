"""A site's folder of models: what is there is meant by its name, and anything else is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fetched_models import model
from hub_server import HubServer

from hpc_llm.cli import run

LLAMA = "meta-llama/Llama-2-7b-hf"
COMMIT = "c" * 40


def site(text: str, folder: str = "../config/hpc-llm/clusters") -> None:
    """A profile of the user's own."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "mine.yaml").write_text(f"extends: local\n{text}\n")


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Any:
    """`plan(model, *settings)`: name and weights of the model that is planned, or the refusal."""

    def ask(name: str, *settings: str) -> Any:
        more = [word for one in settings for word in ("--set", one)]
        asked = [
            "render",
            "--cluster",
            "mine",
            "--method",
            "z3",
            "--model",
            name,
            "--sequence-length",
            "32",
            "--json",
            *more,
        ]
        code = run(asked)
        said = capsys.readouterr()
        if code != 0:
            return said.err
        planned = json.loads(said.out)["plan"]["model"]
        if planned["name"].startswith("/"):
            assert f"model {name}: the site's copy in {planned['name']} is taken" in said.err
        return planned["name"], planned["weights"]

    return ask


def put(folder: Path) -> str:
    for path, data in model(1).items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return str(folder.absolute())


@pytest.mark.parametrize(
    "place",
    [LLAMA, "Llama-2-7b-hf", f"models--meta-llama--Llama-2-7b-hf/snapshots/{COMMIT}", f"hub/models--meta-llama--Llama-2-7b-hf/snapshots/{COMMIT}"],
)  # fmt: skip
def test_a_model_of_the_site_is_meant_by_its_name(place: str, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(Path("site") / place)
    monkeypatch.setenv("KEPT", str(Path("site").absolute()))
    site("models: [/nowhere, '${KEPT}']")
    assert plan(LLAMA) == (folder, "checkpoint")
    assert plan("llama2-7b", "weights=checkpoint") == (folder, "checkpoint")
    assert plan("llama2-7b", "model.weights=checkpoint") == (folder, "checkpoint")
    assert plan("llama2-7b") == ("llama2-7b", "random"), "a preset alone is a shape"
    assert plan("llama2-7b", "weights=random") == ("llama2-7b", "random")
    assert "there is no such folder as 'Qwen/Qwen2-7B' here. If it is a model of the Hub: `hpc-llm fetch" in plan(
        "Qwen/Qwen2-7B"
    )


def test_a_preset_has_its_own_folder_too(plan: Any) -> None:
    folder = put(Path("site/qwen2-7b"))
    site(f"models: ['{Path('site').absolute()}']")
    assert plan("qwen2-7b", "weights=checkpoint") == (folder, "checkpoint")
    assert "`hpc-llm fetch llama2-7b --to DIR` brings them" in plan("llama2-7b", "weights=checkpoint")
    assert "is a preset, which has the shape of a model and no weights" in plan("tiny", "weights=checkpoint")


def test_the_commit_of_main_is_taken_from_the_hubs_cache(plan: Any) -> None:
    entry = Path("site/models--org--m")
    folder = put(entry / "snapshots" / COMMIT)
    put(entry / "snapshots" / ("d" * 40))
    (entry / "refs").mkdir()
    (entry / "refs/main").write_text(COMMIT)
    site(f"models: ['{Path('site').absolute()}']")
    assert plan("org/m") == (folder, "checkpoint")


def test_a_folder_that_says_that_it_is_another_or_not_whole_is_not_taken(hub: HubServer, fetch: Any, plan: Any) -> None:
    hub.add("them/m", model(1))
    assert fetch("them/m", "--to", "site/m").code == 0
    site(f"models: ['{Path('site').absolute()}']")
    assert plan("them/m")[1] == "checkpoint"
    assert "there is no such folder as 'us/m' here" in plan("us/m")
    record = Path("site/m/.hpc-llm/fetch.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "complete": False}))
    assert "is not whole, a fetch into it is under way or was cut off" in plan("them/m")
    shutil.rmtree("site")
    assert "there is no such folder as 'them/m' here" in plan("them/m")


def test_a_folder_of_models_is_a_full_path_and_that_of_a_strangers_profile_is_told(
    plan: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    site("models: [site]")
    assert "models is 'site', and the job works in the folder of its run. Give the full path" in plan(LLAMA)
    Path("../config/hpc-llm/clusters/mine.yaml").unlink()
    site("models: [/their/models]", "clusters")
    run(["render", "--cluster", "mine", "--method", "z3", "--model", "tiny"])
    assert "it leads the job elsewhere (models /their/models)" in capsys.readouterr().err
