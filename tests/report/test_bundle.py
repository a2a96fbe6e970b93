"""The plotting library is made once on a machine, and what somebody else can have written is not taken for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_llm.reporting import bundle


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made each time that it was; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    times: list[str] = []

    def make() -> str:
        times.append(f"made {len(times) + 1}")
        return times[-1]

    monkeypatch.setattr(bundle, "_made", make)
    return times


def kept(tmp_path: Path) -> Path:
    [file] = (tmp_path / "hpc-llm" / "plotting").iterdir()
    return file


def test_it_is_made_once(made: list[str]) -> None:
    assert bundle.vega_bundle() == bundle.vega_bundle() == "(() => {\nmade 1\n})();" and len(made) == 1


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def open_to_others(file: Path) -> None:
    file.chmod(0o666)


def open_the_folder(file: Path) -> None:
    file.parent.chmod(0o777)


def by_a_link(file: Path) -> None:
    file.rename(file.parents[2] / "elsewhere")
    file.symlink_to(file.parents[2] / "elsewhere")


@pytest.mark.parametrize("change", [damage, open_to_others, open_the_folder, by_a_link])
def test_what_is_not_whole_or_not_ours_alone_is_made_anew(made: list[str], tmp_path: Path, change: object) -> None:
    assert callable(change)
    bundle.vega_bundle()
    change(kept(tmp_path))
    assert "made 2" in bundle.vega_bundle() and len(made) == 2


def test_where_nothing_can_be_kept_it_is_made_each_time(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "made 1" in bundle.vega_bundle() and "made 2" in bundle.vega_bundle()


def test_the_real_one_defines_what_the_page_calls() -> None:
    assert "window.vegaEmbed" in bundle.vega_bundle()
