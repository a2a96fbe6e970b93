"""Names, messages and lines that somebody else wrote: they steer no terminal, hide nothing, and are no formula, link or markup."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting.files import write_markdown
from hpc_llm.reporting.latex import latex_text
from hpc_llm.reporting.page import _json
from hpc_llm.text.shown import json_text, markdown_text, one_line, plain_text, safe_text, shown

CSI, OSC, BEL, C1 = "\x1b[2J\x1b[31m", "\x1b]0;owned\x07", "\x07", "\x9b31m\x85"
BIDI, ZERO, RETURN = "\u202egnp\u2066", "\u200b\ufeff\u2060\u00ad\U000e0041", "ok\rfake"
HOSTILE = f"a{CSI}{OSC}{BEL}{C1}{BIDI}{ZERO}{RETURN}\u2028z"
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\xad\U000e0041]|\r(?!\n)"
)
LOG = f"""[Step 1/9] Loss: 2.5 | Global Tokens/s: 5.5 | GPU Mem (GB): 3.10 | Peak Mem: 4.25
Traceback (most recent call last):
  File "a.py", line 1, in f
RuntimeError: it broke {HOSTILE.replace(chr(13), "").replace(chr(10), "")} here
"""
RUN = "20260501-100000-local-z3-tiny-ab12"
HPC_LLM = [sys.executable, "-c", "from hpc_llm.cli import main; main()"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a hostile name and message, and a run of ours that printed the same."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / f"=cmd{CSI}{BIDI}x.log").write_text(LOG)
    run = RunPaths(folder / "logs" / RUN)
    plan = {"task": "pretrain", "cluster": HOSTILE, "method": "z3", "model": "tiny", "steps": 9, "world_size": 1}
    write_json(run.experiment, {"schema": 1, "run_id": RUN, "plan": plan})
    write_json(run.result, {"schema": 1, "outcome": "FAILED", "outcome_reason": HOSTILE})
    run.stdout.write_text(LOG)
    return folder


def on_a_terminal(arguments: list[str], folder: Path) -> str:
    """What a terminal gets, which is stdout and stderr of the command."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "HPC_LLM_SCHEDULER": "", "COLUMNS": "200"}
    with subprocess.Popen([*HPC_LLM, *arguments], stdout=theirs, stderr=theirs, cwd=folder, env=environment) as process:
        os.close(theirs)
        parts: list[bytes] = []
        while select.select([ours], [], [], 60)[0]:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
        process.wait(60)
    os.close(ours)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--logs", "logs"],
        ["diagnose", "LOG"],
        ["diagnose", "RUN", "--logs", "logs"],
        ["logs", "RUN", "--logs", "logs"],
        ["parse", "LOG"],
        ["parse", "LOG", "--format", "markdown"],
        ["parse", "LOG", "--format", "json"],
        ["parse", "LOG", "--format", "csv"],
        ["parse", HOSTILE],
        ["status", HOSTILE, "--logs", "logs"],
        ["render", "--cluster", HOSTILE],
        [HOSTILE],
        ["diagnose", f"--{HOSTILE}"],
    ],
    ids=lambda words: " ".join(word.encode("ascii", "replace").decode()[:9] for word in words),
)
def test_no_command_steers_a_terminal(place: Path, arguments: list[str]) -> None:
    log = next(place.glob("*.log")).name
    names = {"LOG": f"./{log}", "RUN": RUN}
    printed = on_a_terminal([names.get(word, word) for word in arguments], place)
    assert printed.strip()
    assert not FORBIDDEN.search(printed), printed.encode()


def test_a_pipe_gets_the_output_of_a_run_as_it_is(place: Path) -> None:
    command = [*HPC_LLM, "logs", RUN, "--logs", "logs"]
    assert subprocess.run(command, cwd=place, capture_output=True, check=True).stdout.decode() == LOG


def test_json_means_the_same(place: Path) -> None:
    log = next(place.glob("*.log"))
    done = subprocess.run([*HPC_LLM, "parse", str(log), "--format", "json"], capture_output=True, check=True, text=True)
    assert not FORBIDDEN.search(done.stdout)
    assert json.loads(done.stdout)[0]["source"] == str(log)
    assert json.loads(json_text(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE


FORMULAS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "'=1",
    'a";=1+1',
    "a;=1",
    "a; -x",
    "\uff1d1",
    "x\t@y",
    '"=1',
]
FIGURES = ["-1", "-1.5", "+2", "1e-5", "-3.25E+10", "7"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula_however_cells_are_parted(text: str) -> None:
    cell = safe_text(text)
    assert plain_text(cell) == text
    for part in re.split(r"[;\t\r\n]", cell):
        assert not re.match(r"[\s\"]*[=+\-@\uff1d]", part), cell


@pytest.mark.parametrize("text", FIGURES)
def test_figures_stay_figures(text: str) -> None:
    assert safe_text(text) == text


def test_the_csv_of_parse_holds_no_formula_and_keeps_its_numbers(tmp_path: Path) -> None:
    for name in ("=HYPERLINK(1).log", "-2+3.log", "a;@x.log"):
        (tmp_path / name).write_text(LOG.replace("2.5", "-2.5"))
    subprocess.run([*HPC_LLM, "parse", "./", "-o", "x.csv"], cwd=tmp_path, capture_output=True, check=True)
    with (tmp_path / "x.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert {row["loss_first"] for row in rows} == {"-2.5"}
    texts = [value for row in rows for value in row.values() if value and not re.fullmatch(r"-?[\d.e+]+", value)]
    assert not any(re.search(r"(?:^|[;\t\"])[=+@-]", text) for text in texts)


@pytest.mark.parametrize("ending", [".xlsx", ".ods", ".html", ".parquet", "", ".cvs"])
def test_an_ending_that_is_no_format_is_refused(tmp_path: Path, ending: str) -> None:
    (tmp_path / "a.log").write_text(LOG)
    done = subprocess.run(
        [*HPC_LLM, "parse", "a.log", "-o", f"x{ending}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert ".csv, .json, .jsonl, .md, .txt" in done.stderr
    assert os.listdir(tmp_path) == ["a.log"]


def test_markup_is_text_in_every_document() -> None:
    words = "# <script>x</script> [a](javascript:b) |`c` $d$\u2028"
    assert markdown_text(words) == "\\# &lt;script&gt;x&lt;/script&gt; \\[a\\](javascript:b) \\|\\`c\\` \\$d\\$"
    assert [markdown_text(w) for w in ("- a", "+ a", "> a", "12. a", "1) a")] == [
        "\\- a",
        "\\+ a",
        "&gt; a",
        "12\\. a",
        "1\\) a",
    ]
    assert [markdown_text(w) for w in ("-1.5", "100.0", "+2", "z3+o")] == ["-1.5", "100.0", "+2", "z3+o"]
    assert "\\input" not in latex_text("\\input{/etc/passwd}")
    page = str(_json({"a": f"</script><!--{HOSTILE}"}))
    assert "<" not in page and not FORBIDDEN.search(page)
    assert write_markdown.__module__ == "hpc_llm.reporting.files"


def test_what_is_shown_is_all_that_can_be_seen() -> None:
    assert one_line(HOSTILE) == "agnpok fakez"
    assert shown("é 漢字 🙂 a\tb\n") == "é 漢字 🙂 a\tb\n"
    assert not FORBIDDEN.search(shown("".join(map(chr, range(0x3000))) + "\ud800"))


def test_a_traceback_steers_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from hpc_llm.cli import run

    monkeypatch.setenv("HPC_LLM_DEBUG", "1")
    assert run(["render", "--cluster", "\x1b[31mX\x1b]0;t\a", "--method", "z2"]) == 2
    said = capsys.readouterr()
    assert "Traceback (most recent call last)" in said.err and not {"\x1b", "\a", "\x9b"} & set(said.err + said.out)
