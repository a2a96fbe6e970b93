"""What other packages bring may be broken in any way: one sentence where it is asked for, and nobody else is hindered."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from installed import OUTSIDE, POINTS, hpc_llm, install

from hpc_llm.causes import catalogue
from hpc_llm.causes.cause import sign
from hpc_llm.causes.found import signs_in
from hpc_llm.errors import Notice, RequestError
from hpc_llm.outside import Group, wrong_field
from hpc_llm.parsing import parallel, registry
from hpc_llm.parsing.formats import nanogpt
from hpc_llm.planning import engines
from hpc_llm.planning.engines import EngineFacts

INTS = Group(name="tests.numbers", what="number", kind=int)
BROKEN = "raise ValueError('too old.\\nGet a newer one.')\n"
OLD = "cannot be used: too old. Get a newer one."


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """`brought(module, points)`: a package with a module of that text and these entry points of numbers."""

    def bring(text: str, point: str) -> None:
        place = install(tmp_path / "site", {"some_numbers": text}, {INTS.name: point})
        monkeypatch.syspath_prepend(str(place))
        monkeypatch.delitem(sys.modules, "some_numbers", raising=False)

    return bring


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BROKEN, OLD),
        ("ONE = '1'", "cannot be used: it is no int."),
        ("TWO = 2", "has no attribute 'ONE'."),
        ("import not_there_at_all", "No module named 'not_there_at_all'."),
        ("ONE = (", "was never closed (some_numbers.py, line 1)."),
        ("raise SystemExit(3)", "cannot be used: it raises SystemExit(3)."),
        ("raise KeyError", "cannot be used: it raises KeyError."),
        ("import hpc_llm.nothing_of_ours", "No module named 'hpc_llm.nothing_of_ours'."),
    ],
)
def test_whatever_a_module_does_is_one_sentence(brought: Callable[[str, str], None], text: str, why: str) -> None:
    brought(text, "one = some_numbers:ONE")
    with pytest.raises(RequestError) as caught:
        INTS.load("one")
    said = str(caught.value)
    assert said.startswith("the number one of some_numbers:ONE cannot be used: ") and said.endswith(why), said
    assert "\n" not in said and INTS.names() == ("one",)


def test_one_is_found_by_its_name_and_two_of_a_name_are_refused(
    brought: Callable[[str, str], None], tmp_path: Path
) -> None:
    brought("ONE = 1\nTWO = 2", "one = some_numbers:ONE")
    assert INTS.load("one") == 1
    with pytest.raises(KeyError):
        INTS.load("two")
    install(tmp_path / "site", {}, {INTS.name: "one = some_numbers:TWO"}, name="others")
    with pytest.raises(RequestError, match=r"several packages bring a number one: .*some_numbers:TWO"):
        INTS.load("one")


def test_a_damaged_package_that_need_not_be_ours_is_told_of(brought: Callable[[str, str], None]) -> None:
    brought("ONE = 1", "this is no entry point")
    with pytest.warns(Notice, match="no number of another package is known, for the entry points cannot be read"):
        assert INTS.names() == ()


def test_each_kind_that_is_broken_costs_one_sentence_where_it_is_asked_for(tmp_path: Path) -> None:
    broken = {f"their_{path.stem}": BROKEN for path in OUTSIDE.glob("*.py")}
    site = install(tmp_path / "site", broken, POINTS)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "theirs.yaml").write_text((OUTSIDE / "cluster.yaml").read_text())
    (tmp_path / "task.yaml").write_text("{cluster: local, method: ddp, task: polite}")
    (tmp_path / "iter.log").write_text("".join(f"iter {n}: loss 3.2, time 12.50ms, mfu 10.00%\n" for n in range(9)))
    plain = ("render", "--cluster", "local", "--method", "ddp")
    for asked, code, what in (
        (plain, 0, ""),
        (("render", "task.yaml"), 2, "the task polite of their_task:KIND"),
        ((*plain, "--set", "engine=counting"), 2, "the engine counting of their_engine:FACTS"),
        (("render", "--cluster", "theirs", "--method", "ddp"), 2, "the launcher envrun of their_launcher:LAUNCHER"),
        (("parse", "iter.log"), 0, "the log format toytrainer of their_log_format:FORMAT"),
        (("diagnose", "iter.log"), 0, "the cause theirs of their_cause:CAUSES"),
    ):
        done = hpc_llm(*asked, site=site, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert not what or f"{what} {OLD}" in done.stderr, done.stderr
        assert what or not done.stderr
        assert "Traceback" not in done.stderr and bool(done.stdout) == (code == 0)


def test_what_is_broken_is_told_of_once_however_many_processes_read(tmp_path: Path) -> None:
    site = install(tmp_path / "site", {f"their_{path.stem}": BROKEN for path in OUTSIDE.glob("*.py")}, POINTS)
    line = f"{'nothing of interest ' * 100}\n"
    for name in ("a.log", "b.log"):
        steps = "".join(f"iter {n}: loss 3.2, time 12.50ms, mfu 10.00%\n" for n in range(9))
        (tmp_path / name).write_text(steps + line * (parallel.WORTHWHILE // 2 // len(line) + 1))
    done = hpc_llm("parse", ".", site=site, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the cause theirs of") == 1
    assert done.stderr.count("the log format toytrainer of") == 1


def test_an_engine_that_cannot_say_what_it_can_costs_one_sentence(tmp_path: Path) -> None:
    text = (OUTSIDE / "engine.py").read_text().replace("wanted.zero_stage else", "wanted.zero_stag else")
    site = install(tmp_path / "site", {"their_engine": text}, {"hpc_llm.engines": POINTS["hpc_llm.engines"]})
    asked = ("render", "--cluster", "local", "--method", "z2")
    done = hpc_llm(*asked, "--set", "engine=counting", site=site, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "the engine counting of their_engine cannot say whether it can: " in done.stderr
    done = hpc_llm(*asked, "--set", "engine=plain", site=site, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.endswith("Engines that can: deepspeed, fsdp2, flat.\n")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "a b"}, "is no name of an engine"),
        ({"module": "a-b"}, "is no name of a Python module"),
        ({"module": ""}, "is no name of a Python module"),
        ({"packages": ("x; rm",)}, "is no name of a Python module"),
        ({"carries": ("a.b",)}, "is no name of a top-level Python module"),
    ],
)
def test_facts_that_a_script_or_an_archive_could_not_hold_are_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replace(EngineFacts(name="mine", module="mine"), **changes)


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registries without what is registered; what these tests register is known to no other."""
    with monkeypatch.context() as patch:
        patch.setattr(engines._registry, "_registered", {})
        patch.setattr(registry._registry, "_registered", {})
        patch.setattr(catalogue._registry, "_registered", {})
        yield
    lists = (registry.formats, registry.line_formats, registry.document_formats, registry.folder_formats)
    for known in (*lists, registry.line_format, catalogue.all_causes):
        known.cache_clear()


@pytest.mark.usefixtures("empty")
def test_engines_log_formats_and_causes_can_be_registered_by_hand_once() -> None:
    facts = EngineFacts(name="mine", module="mine.deep", carries=("helper",))
    engines.register(facts)
    assert engines.find("mine").carried == ("mine", "helper")
    toy = replace(nanogpt.FORMAT, name="mine", hints=(b"toyline ",), confirm=None)
    registry.register(toy)
    assert registry.formats_in(b"toyline 1") == (toy,) and registry.line_format("mine") is toy
    assert not signs_in(b"toylicd: no seat\n")
    cause = replace(catalogue.BY_ID["walltime"], id="mine", signs=(sign("toylicd: no seat"),))
    catalogue.register(cause)
    assert [found.cause for found in signs_in(b"toylicd: no seat\n")] == [cause]
    for again in (
        lambda: engines.register(facts),
        lambda: engines.register(replace(facts, name="plain")),
        lambda: registry.register(replace(toy, name="nanogpt")),
        lambda: registry.register(toy),
        lambda: catalogue.register(cause),
        lambda: catalogue.register(replace(cause, id="walltime")),
    ):
        with pytest.raises(ValueError, match="already"):
            again()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ('id="walltime"', "the cause 'walltime' of theirs cannot be used: there is one of that id already."),
        ('signs=(sign(""),)', "has no text by which it is found."),
        ("signs=(sign(()),)", "has no text by which it is found."),
        ('signs=(sign("x", "("),)', "the pattern '(' is none: missing ), unterminated subpattern"),
        ('signs=(sign("x", "x*"),)', "the pattern 'x*' fits every text."),
    ],
)
def test_a_cause_that_would_find_nothing_or_anything_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, why: str
) -> None:
    text = "from hpc_llm.causes.cause import sign\nfrom hpc_llm.causes.catalogue import BY_ID\nfrom dataclasses import replace\n"
    text += f"ONE = replace(BY_ID['walltime'], **(dict(id='mine') | dict({changed})))\n"
    two = "CAUSES = (ONE, replace(BY_ID['walltime'], id='good'), 3)\n"
    place = install(
        tmp_path / "site", {"causes_of_theirs": text + two}, {"hpc_llm.causes": "theirs = causes_of_theirs:CAUSES"}
    )
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "causes_of_theirs", raising=False)
    monkeypatch.setattr(catalogue._registry, "_loaded", {})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = catalogue.all_causes.__wrapped__()
    assert set(found) - set(catalogue.BY_ID) == {"good"}
    assert [str(one.message) for one in told][
        -1
    ] == "the cause 3 of theirs cannot be used: it is no Cause. It is left out."
    assert len(told) == 2 and why.rstrip(".") in str(told[0].message)


FIELDS = {
    "precedence": ("hpc_llm.log_formats", 'ONE = LineFormat(name="one", hints=(b"x",), rules=(), precedence="x")', "precedence is 'x', where <class 'int'> is needed"),
    "text for bytes": ("hpc_llm.log_formats", 'ONE = LineFormat(name="one", hints=("x",), rules=())', "hints is ('x',), where tuple[bytes, ...] is needed"),
    "no function": ("hpc_llm.log_formats", 'ONE = DocumentFormat(name="one", hints=((b"x",),), read=3)', "read is 3, where "),
    "within a sign": ("hpc_llm.causes", 'ONE = replace(BY_ID["segfault"], id="one", signs=(Sign(source="x", literals=("x",)),))', "signs: literals is ('x',), where tuple[bytes, ...] is needed"),
}  # fmt: skip
"""Kind, member and what is said of it."""


@pytest.mark.parametrize("case", FIELDS)
def test_a_member_with_a_wrong_field_costs_one_sentence_and_nobody_s_rows(tmp_path: Path, case: str) -> None:
    """It ended every command with an error of Python."""
    group, member, why = FIELDS[case]
    lines = [
        "from dataclasses import replace",
        "from hpc_llm.parsing.registry import DocumentFormat, LineFormat",
        *(
            ["from hpc_llm.causes.catalogue import BY_ID", "from hpc_llm.causes.cause import Sign"]
            if "causes" in group
            else []
        ),
        member,
    ]
    place = install(tmp_path / "site", {"some_numbers": "\n".join(lines)}, {group: "one = some_numbers:ONE"})
    log = tmp_path / "a.log"
    log.write_text("x\n" + "".join(f"step {n}: train loss 2.{n}, val loss 2.{n}\n" for n in range(9)))
    for command in ("parse", "diagnose"):
        done = hpc_llm(command, str(log), site=place, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "unexpected" not in done.stderr and "Traceback" not in done.stderr
        if command == "parse" or "causes" in group:
            assert (
                f"the {'cause' if 'causes' in group else 'log format'} one of some_numbers:ONE cannot be used: its {why}"
                in done.stderr
            )


def test_a_document_that_another_package_cannot_read_is_passed_over(tmp_path: Path) -> None:
    text = """
from hpc_llm.parsing.registry import DocumentFormat

def read(text):
    raise RuntimeError("of its own making")

ONE = DocumentFormat(name="one", hints=((b"x",),), read=read)
"""
    place = install(tmp_path / "site", {"some_numbers": text}, {"hpc_llm.log_formats": "one = some_numbers:ONE"})
    (tmp_path / "a.json").write_text('{"x": 1}')
    done = hpc_llm("parse", str(tmp_path / "a.json"), site=place, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "log format one of another package cannot read it: of its own making" in done.stderr


def test_an_import_that_ends_a_generator_is_one_sentence(brought: Callable[[str, str], None]) -> None:
    brought("raise GeneratorExit", "one = some_numbers:ONE")
    with pytest.raises(RequestError, match="it raises GeneratorExit"):
        INTS.load("one")


def test_a_field_of_any_kind_holds_anything() -> None:
    @dataclass
    class Member:
        whatever: Any
        texts: Sequence[str]
        act: Callable[[int], int] | None = None

    assert wrong_field(Member(3, ["a"])) is None and wrong_field(Member(None, (), abs)) is None
    assert wrong_field(Member(3, ["a"], 4)) is not None  # type: ignore[arg-type]
