"""The files beside the page: what they hold, and that hostile names stay text in each of them."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rights import mounted
from synthetic import HOSTILE_CLUSTER, HOSTILE_METHOD, Made, write_run

from hpc_llm.cli import run as command
from hpc_llm.errors import RequestError
from hpc_llm.parsing import Step, parallel
from hpc_llm.parsing.read import sample_of
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting import Report, assumptions, collect, make_report, summary, write_report
from hpc_llm.reporting.earlier import RECORD
from hpc_llm.reporting.figures import figures, method_names
from hpc_llm.reporting.files import reading_metrics, reading_table
from hpc_llm.reporting.latex import PRINTED_AS, latex_text, write_latex
from hpc_llm.reporting.plots import draw, method_styles, write_plots
from hpc_llm.text.shown import markdown_text, plain_text, safe_text


def rows(written: Path) -> list[dict[str, str]]:
    with (written / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_row_for_each_setting_and_outcome(written: Path, report: Report) -> None:
    found = rows(written)
    assert len(found) == len(report.compared) + len(report.invalid)
    oom = [row for row in found if row["outcome"] == "OOM_DEVICE"]
    assert oom and all(row["tokens_per_second"] == "" and row["mfu"] == "" for row in oom)
    assert not any(value in ("0", "0.0", "-1", "nan", "None") for row in found for value in row.values())


def test_csv_says_why_runs_are_invalid_and_gives_none_of_their_figures(written: Path) -> None:
    invalid = [row for row in rows(written) if row["outcome"] == "INVALID"]
    assert sorted(row["outcome_reason"][:8] for row in invalid) == ["it ran o", "the loss"]
    assert all(row["tokens_per_second"] == "" and row["run_ids"] for row in invalid)


def test_markdown_has_a_row_for_each_invalid_run(written: Path, report: Report) -> None:
    table = (written / "results.md").read_text().partition("## INVALID runs\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| 2026")]
    assert len(lines) == len(report.invalid) > 0
    assert all("INVALID" in line and ("it ran on" in line or "the loss" in line) for line in lines)


def test_csv_keeps_every_digit(written: Path, report: Report) -> None:
    expected = report.compared.known("tokens_per_second")
    assert [float(r["tokens_per_second"]) for r in rows(written) if r["tokens_per_second"]] == expected


def test_csv_cells_are_no_formulas(written: Path) -> None:
    methods = {row["method"] for row in rows(written)}
    assert f"'{HOSTILE_METHOD}" in methods
    assert not any(re.match(r"[=+\-@\t\r]", value) for row in rows(written) for value in row.values())


@pytest.mark.parametrize("text", ["z3", "=1+1", "'=1", "''+x", "+o", "-1", "@x", "'quoted'", "", "\tx"])
def test_a_guarded_cell_can_be_read_back(text: str) -> None:
    assert plain_text(safe_text(text)) == text


def test_markdown_marks_the_best_and_stays_a_table(written: Path) -> None:
    lines = (written / "results.md").read_text().splitlines()
    assert "## llama2-7b · micro batch 1 · sequence length 350" in lines
    table = [line for line in lines if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
    assert len(widths) <= 3, "a name must not open a column"  # of sections of two kinds, and of INVALID runs
    assert sum("**" in line for line in table) >= 4
    assert not any("<script" in line or "<img" in line for line in lines)
    assert any("INVALID" in line and "not a finite number" in line for line in lines)


def test_markdown_names_the_runs_that_have_no_counterpart(tmp_path: Path) -> None:
    for start, name in ((5, "first"), (6, "second")):
        lines = [f"iter {i}: loss {start - i / 50:.4f}, time 100.00ms, mfu 30.00%\n" for i in range(50)]
        (tmp_path / f"{name}.log").write_text("".join(lines))
    assert command(["report", str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    table = [line for line in (tmp_path / "out" / "results.md").read_text().splitlines() if line.startswith("|")]
    assert table[0].startswith("| Run ") and [line.split("|")[1].strip() for line in table[2:]] == ["first", "second"]


def test_markdown_has_speed_up_and_efficiency(written: Path, report: Report) -> None:
    text = (written / "results.md").read_text().split("## Speed-up over GPUs: llama2-7b")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert rows[0][-2:] == ["Speed-up", "Efficiency (%)"] and len(rows) - 2 == len(report.scaling) == 12
    assert all(
        float(row[-1]) == pytest.approx(100 * float(row[-2]) * int(row[3]) / int(row[2]), rel=0.01) for row in rows[2:]
    )


def test_markdown_text() -> None:
    assert markdown_text("a|b*c_d\\e\n<x>") == "a\\|b\\*c_d\\\\e &lt;x&gt;"


def test_latex_is_balanced_and_hostile_names_do_nothing(written: Path) -> None:
    text = (written / "results.tex").read_text()
    body = re.sub(r"(?m)^%.*$", "", text)
    unescaped = re.sub(r"\\[{}\\%&#_$]", "", body)
    assert unescaped.count("{") == unescaped.count("}")
    assert body.count(r"\begin{tabular}") == body.count(r"\end{tabular}") >= 2
    assert r"\textbf{" in body and r"OOM\_DEVICE" in body and r"$\pm$" in body
    assert HOSTILE_CLUSTER not in body and "|" not in body


@pytest.mark.parametrize(
    ("text", "expected"), [("100% & $x_1$", r"100\% \& \$x\_1\$"), ("\\input{a}", r"\textbackslash{}input\{a\}")]
)
def test_latex_text(text: str, expected: str) -> None:
    assert latex_text(text) == expected


def test_latex_rows_have_as_many_cells_as_the_header(written: Path) -> None:
    tables = latex_tables(written / "results.tex")
    assert len(tables) > 2
    assert all(len({len(row) for row in rows}) == 1 for rows in tables)


def test_latex_holds_every_figure_of_every_row_once(written: Path, report: Report) -> None:
    section = report.sections[0]
    shown = reading_table(section, reading_metrics(section.rows))
    found: dict[tuple[str, str], str] = {}
    for header, *rows in latex_tables(written / "results.tex", title=section.title):
        for row in rows:
            cells = {(row[0], name): cell for name, cell in zip(header[1:], row[1:], strict=True)}
            assert all(found.get(key, cell) == cell for key, cell in cells.items()), "a row has one name in all tables"
            found |= cells
    expected = {(row["#"], name): row[name] for row in shown for name in shown.columns if name != "#"}
    assert found == expected


def test_latex_tables_fit_the_width_of_a_page(tmp_path: Path, logs: Path) -> None:
    foreign = tmp_path / "logs"
    foreign.mkdir()
    for name in ("a_run_with_a_long_name_of_its_own_of_node017", "W" * 60):
        lines = [f"iter {i}: loss {5 - i / 50:.4f}, time 100.00ms, mfu 30.00%\n" for i in range(50)]
        (foreign / f"{name}.log").write_text("".join(lines))
    for number, paths in enumerate(([logs], [foreign], [logs, foreign])):
        made = make_report(collect(paths))
        write_latex(made.sections, [], tmp_path / f"{number}.tex")
        for rows in latex_tables(tmp_path / f"{number}.tex", boxes=True):
            width = sum(max(map(latex_width, column)) + 6 for column in zip(*rows, strict=True))
            assert width <= 345, rows[0]


def latex_tables(path: Path, title: str = "", boxes: bool = False) -> list[list[list[str]]]:
    """The cells of each table as they print, header first; with `boxes` a broken cell stays as it is in the file."""
    commands = {command: character for character, command in PRINTED_AS.items() if "\\" in command}
    plain = re.compile("|".join(re.escape(command) for command in sorted(commands, key=len, reverse=True)))
    found = []
    for table in path.read_text().split("\\begin{table}")[1:]:
        if title and not table.startswith("\n\\caption{" + latex_text(title)):
            continue
        body = table.split("\\toprule")[1].split("\\bottomrule")[0]
        lines = [line[:-2].strip() for line in body.splitlines() if line.endswith("\\\\")]
        cells = [[cell.strip() for cell in re.split(r"(?<!\\)&", line)] for line in lines]
        if not boxes:
            cells = [
                [
                    re.sub(r"^\\parbox.*?\\raggedright (.*)\\strut\}$", r"\1", c).replace("\\allowbreak{}", "")
                    for c in row
                ]
                for row in cells
            ]
            cells = [[re.sub(r"^\\textbf\{(.*)\}$", r"\1", cell) for cell in row] for row in cells]
            cells = [
                [plain.sub(lambda m: commands[m[0]], cell).replace("{[}", "[").replace("{]}", "]") for cell in row]
                for row in cells
            ]
        found.append(cells)
    return found


def latex_width(cell: str) -> float:
    """Points in Computer Modern at footnotesize, measured in the font itself; of a box that of its longest piece or its own."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    font = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts/ttf/cmr10.ttf"))
    font.set_size(8.5, 72)  # cmr8 is as wide as cmr10 at 8.5 points

    def measured(text: str) -> float:
        text = re.sub(r"\\text[a-z]+\{\}|\$\\(pm|times|cdot)\$", "+", text)
        return sum(font.load_char(ord(c)).linearHoriAdvance / 65536 for c in text.replace("\\", ""))

    box = re.match(r"\\parbox\[t\]\{([\d.]+)pt\}\{\\raggedright (.*)\\strut\}$", cell)
    if box:
        return max(float(box[1]), *(measured(piece) for piece in re.split(r"\\allowbreak\{\}| ", box[2])))
    bold = re.match(r"\\textbf\{(.*)\}$", cell)
    return 1.15 * measured(bold[1]) if bold else measured(cell)


def test_each_plot_is_a_png_and_an_svg_with_words(written: Path) -> None:
    pictures = sorted(path.name for path in written.glob("*.png"))
    assert [p.rsplit("-llama", 1)[0] for p in pictures] == ["loss"] * 2 + ["memory"] * 2 + ["rates"] * 2 + ["scaling"]
    for picture in pictures:
        assert (written / picture).read_bytes().startswith(b"\x89PNG")
        svg = ET.parse((written / picture).with_suffix(".svg")).getroot()
        words = "".join(svg.itertext())
        assert "taiwania2" in words and any(axis in words for axis in ("Tokens/s", "Step", "GPUs"))
        assert (HOSTILE_CLUSTER in words) == ("llama2" in picture and "scaling" not in picture)
        assert not list(svg.iter("{http://www.w3.org/2000/svg}script"))


def test_every_point_lies_within_its_panel(report: Report) -> None:
    drawn_figures = figures(report)
    styles = method_styles(method_names(drawn_figures))
    for figure in drawn_figures:
        axes = draw(figure, "", styles).axes
        assert len(axes) == len(figure.panels)
        drawn = 0
        for ax in axes:
            (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
            points = [(float(x), float(y)) for line in ax.lines for x, y in zip(*line.get_data(), strict=True)]
            assert all(left <= x <= right and bottom <= y <= top for x, y in points), figure.id
            drawn += len(points)
        assert drawn >= len(figure.records)


def test_the_loss_of_logs_of_unlike_length_is_over_a_logarithmic_axis(tmp_path: Path) -> None:
    for name, count in (("short", 20), ("long", 4000)):
        lines = [f"iter {i}: loss {5 - i / 5000:.4f}, time 100.00ms, mfu 30.00%\n" for i in range(count)]
        (tmp_path / f"{name}.log").write_text("".join(lines))
    (figure,) = figures(make_report(collect([tmp_path])))
    assert {r["method"] for r in figure.records} == {"short", "long"} and min(r["x"] for r in figure.records) > 0
    canvas = draw(figure, "", method_styles(method_names([figure])))
    (axes,) = canvas.axes
    assert axes.get_xscale() == "log"
    labels = [axes.xaxis.get_major_formatter()(value) for value in (1, 10, 1000)]
    assert labels == ["1", "10", "1000"], "no markup, for names are no mathematics"


def test_the_same_runs_give_the_same_bytes(report: Report, written: Path, tmp_path: Path) -> None:
    for path in write_plots(report, tmp_path)[:4]:
        assert path.read_bytes() == (written / path.name).read_bytes(), path.name


def test_a_run_counts_once_however_often_it_is_named(logs: Path) -> None:
    one = next(iter(sorted(logs.iterdir())))
    assert len(collect([one, logs, one])) == len(collect([logs]))


def test_the_reports_own_files_are_not_read_as_logs(tmp_path: Path) -> None:
    write_run(tmp_path, Made(run_id="a", cluster="delta", method="z3"))
    assert command(["report", str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    assert [run.row.run_id for run in collect([tmp_path], without=tmp_path / "out")] == ["a"]


def test_what_logs_do_not_say_can_be_given_and_is_noted(tmp_path: Path) -> None:
    log = tmp_path / "gpt.log"
    log.write_text("".join(f"iter {i}: loss {5 - i / 50:.4f}, time 100.00ms, mfu 30.00%\n" for i in range(50)))
    (plain,) = collect([log])
    (given,) = collect([log], assumed=assumptions(["model=gpt2", "world_size=4"]))
    assert plain.row.model is None and given.row.model == "gpt2" and given.row.world_size == 4
    assert given.notices == [
        "model gpt2 was given on the command line, the log does not say it",
        "world_size 4 was given on the command line, the log does not say it",
    ]


def test_what_a_run_says_is_not_overruled(logs: Path) -> None:
    assert {r.row.model for r in collect([logs], assumed={"model": "other"})} == {"llama2-7b", "llama3.2-1b"}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("model", "COLUMN=VALUE"),
        ("modle=x", "did you mean 'model'"),
        ("mfu=1", "no column"),
        ("nodes=two", "whole number"),
    ],
)
def test_a_wrong_assumption_is_refused(pair: str, message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        assumptions([pair])


def test_the_loss_of_a_log_in_pieces_is_drawn_evenly_from_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page gets the same steps whether a log is read whole or in pieces, to a small part of their distance."""
    for name, steps in (("short", 300), ("long", 30_000)):
        lines = [f"[Step {i}/30000] Loss: {5 - i / 1e4:.4f} | Global Tokens/s: 53.5 | GPU Mem (GB): 5.2 | Peak Mem: 5.7\n"
                 for i in range(1, steps + 1)]  # fmt: skip
        (tmp_path / f"{name}.log").write_text("".join(lines))
    whole = {run.row.run_id: run for run in collect([tmp_path])}
    for name, value in (("PIECE", 300_000), ("WORTHWHILE", 1)):
        monkeypatch.setattr(parallel, name, value)
    pieces = {run.row.run_id: run for run in collect([tmp_path])}
    assert [s.step for s in whole["short"].steps] == [s.step for s in pieces["short"].steps] == list(range(1, 301))
    assert whole["long"].num_steps == pieces["long"].num_steps == 30_000
    assert [s.step for s in whole["long"].steps] == [*range(1, 30_001, 128), 30_000]
    for one, other in zip(whole["long"].steps, pieces["long"].steps, strict=True):
        assert one.step and other.step and abs(one.step - other.step) <= 16
        assert other.loss == pytest.approx(5 - other.step / 1e4, abs=1e-4)


def test_own_runs_of_many_steps_are_drawn_with_both_ends() -> None:
    sample = sample_of(Step(step=number, loss=1.0) for number in range(1, 10_001))
    kept = [step.step for step in sample.drawn()]
    assert sample.count == 10_000 and kept == [*range(1, 10_001, 32), 10_000]


def test_command_prints_its_files_and_exits_3_on_a_regression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write_run(old, Made(run_id="a", cluster="delta", method="z3", rate_per_gpu=300.0))
    write_run(new, Made(run_id="b", cluster="delta", method="z3", rate_per_gpu=250.0))
    arguments = ["report", str(new), "-o", str(tmp_path / "out"), "--baseline", str(old / "a")]
    assert command(arguments) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == str(tmp_path / "out" / "index.html")
    assert ": 1, of them worse: 1" in err
    assert "z3 on delta, 8 × V100-SXM2-32GB: tokens/s 16.7 % lower" in err
    assert command([*arguments, "--fail-on-regression"]) == 3
    assert command([*arguments, "--fail-on-regression", "--tolerance", "0.2"]) == 0
    write_run(tmp_path / "other", Made(run_id="c", cluster="delta", method="z2", rate_per_gpu=300.0))
    arguments[-1] = str(tmp_path / "other" / "c")
    capsys.readouterr()
    assert command(arguments) == 0 and command([*arguments, "--fail-on-regression"]) == 2
    assert "no completed row has its counterpart among the completed ones of" in capsys.readouterr().err


def test_wrong_requests_exit_2_and_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "note.txt").write_text("nothing\n")
    for arguments, message in [
        ([str(tmp_path / "absent")], "there is no file or folder"),
        ([str(tmp_path)], "no run or log of a known format"),
        (["-"], "not stdin"),
        ([str(tmp_path), "--fail-on-regression"], "give --baseline"),
        ([str(tmp_path), "-o", str(tmp_path / "note.txt")], "is a file: give a folder"),
    ]:
        output = [] if "-o" in arguments else ["-o", str(tmp_path / "out")]
        assert command(["report", *output, *arguments]) == 2, arguments
        assert message in capsys.readouterr().err


def test_runs_that_measure_nothing_are_told_from_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        run = RunPaths(tmp_path / "logs" / name)
        write_json(run.experiment, {"schema": 1, "run_id": name, "plan": {"task": "prepare", "cluster": "local"}})
        write_json(run.result, {"schema": 1, "outcome": "COMPLETED", "world_size": 1})
    asked = ["report", str(tmp_path / "logs"), "-o", str(tmp_path / "out")]
    assert command(asked) == 2
    told = capsys.readouterr().err
    assert "the runs in there are of prepare alone, which measure nothing that a report shows" in told
    assert "no run or log of a known format" not in told
    write_run(tmp_path / "logs", Made(run_id="c", cluster="delta", method="z3", rate_per_gpu=300.0))
    assert command(asked) == 0


def test_no_report_replaces_its_baseline_or_what_somebody_else_has_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "logs", Made(run_id="a", cluster="delta", method="z3", rate_per_gpu=300.0))
    out = tmp_path / "out"
    made = ["report", str(tmp_path / "logs"), "-o", str(out)]
    assert command(made) == 0 and command(made) == 0  # an earlier report may be replaced
    before = (out / "results.csv").read_bytes()
    assert command([*made, "--baseline", str(out / "results.csv"), "--fail-on-regression"]) == 2
    assert "results.csv, which the report would replace: give another folder" in capsys.readouterr().err
    assert (out / "results.csv").read_bytes() == before
    own = tmp_path / "paper"
    own.mkdir()
    for name in ("results.tex", "index.html"):
        (own / name).write_text("mine\n")
        assert command(["report", str(tmp_path / "logs"), "-o", str(own)]) == 2
        assert "and no report that was written there: give another folder" in capsys.readouterr().err
        assert [path.name for path in own.iterdir()] == [name] and (own / name).read_text() == "mine\n"
        (own / name).unlink()


def test_what_an_earlier_report_left_goes_and_what_others_wrote_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "one", Made(run_id="r", cluster="delta", method="z3"))
    for nodes in (1, 4):
        write_run(tmp_path / "several", Made(run_id=f"n{nodes}", cluster="delta", method="z2", nodes=nodes))
    out = tmp_path / "out"

    def written(folder: str) -> tuple[set[str], str]:
        assert command(["report", str(tmp_path / folder), "-o", str(out)]) == 0
        said = capsys.readouterr()
        return {Path(line).name for line in said.out.splitlines() if line}, said.err

    first, told = written("several")
    assert "did not write" not in told
    changed = min(name for name in first if name.endswith(".png"))
    (out / changed).write_bytes(b"cut for a paper")
    (out / "mine.png").write_bytes(b"mine")
    (out / "notes").write_text("no file of a kind that a report has")
    second, told = written("one")
    gone = first - second
    assert gone, "the two reports have other plots"
    there = {path.name for path in out.iterdir()}
    mine = {"mine.png", *({changed} - second)}
    assert there == second | mine | {"notes", RECORD}
    assert f"that this report did not write: {', '.join(sorted(mine))}." in told
    assert written("one")[0] == second


def test_of_a_report_that_left_no_record_nothing_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "logs", Made(run_id="r", cluster="delta", method="z3", rate_per_gpu=300.0))
    out = tmp_path / "out"
    assert command(["report", str(tmp_path / "logs"), "-o", str(out)]) == 0
    for record in (
        None,
        "{}",
        '{"schema": 1, "files": {"old.png": "0"}}',
        '{"schema": 1, "files": {"../r": "0"}}',
        "[]",
        "x",
    ):
        (out / RECORD).unlink()
        if record is not None:
            (out / RECORD).write_text(record)
        (out / "old.png").write_bytes(b"of an earlier one")
        assert command(["report", str(tmp_path / "logs"), "-o", str(out)]) == 0
        assert "1 file that this report did not write: old.png." in capsys.readouterr().err
        assert (out / "old.png").exists()


def test_an_empty_study_of_invalid_runs_makes_a_page(tmp_path: Path) -> None:
    write_run(tmp_path / "logs", Made(run_id="a", cluster="delta", method="z3", outcome="INVALID", reason="too short"))
    made = make_report(collect([tmp_path / "logs"]))
    assert made.sections == [] and made.invalid == [0]
    assert command(["report", str(tmp_path / "logs"), "-o", str(tmp_path / "out")]) == 0
    assert "too short" in (tmp_path / "out" / "index.html").read_text()


def test_inputs_without_a_known_format_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 0.001, 'epoch': 0.1}\n" * 3)
    for number in range(4):
        (tmp_path / f"notes-{number}.txt").write_text("nothing that a program says\n")
    said = summary(make_report(collect([tmp_path])))
    assert said.endswith(
        f"; 4 inputs without a known format: {', '.join(str(tmp_path / f'notes-{n}.txt') for n in range(3))} and 1 more"
    )


def test_a_report_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("{'loss': 2.0, 'grad_norm': 1.0, 'learning_rate': 1e-4, 'epoch': 0.5}\n" * 50)
    report = make_report(collect([tmp_path / "a.log"]))
    with mounted(tmp_path / "disk", "4m") as disk:
        earlier = disk.folder / "earlier"
        earlier.mkdir()
        (earlier / "results.csv").write_text("of an earlier report")
        (earlier / "index.html").write_text("<title>hpc-llm report · 2026</title>")
        disk.fill()
        for folder in (disk.folder / "rep", earlier):
            with pytest.raises(OSError) as failure:
                write_report(report, folder)
            assert failure.value.filename == str(folder / "results.csv")
        assert sorted(disk.folder.rglob("*")) == [
            disk.folder / "ballast", earlier, earlier / "index.html", earlier / "results.csv"
        ]  # fmt: skip
        disk.make_room()
        files = write_report(report, earlier)
        assert sorted(files) == sorted(set(earlier.iterdir()) - {earlier / RECORD})


@pytest.mark.parametrize(
    ("missing", "left"),
    [
        (["matplotlib", "vl_convert"], "without plots, which need matplotlib and vl-convert-python: python -m pip install matplotlib vl-convert-python"),
        (["matplotlib"], "without plots as PNG and SVG, which need matplotlib: python -m pip install matplotlib"),
        (["vl_convert"], "without plots in the page, which need vl-convert-python: python -m pip install vl-convert-python"),
    ],
)  # fmt: skip
def test_without_a_plotting_library_all_else_is_written(
    missing: list[str],
    left: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(name: str) -> object | None:
        return None if name in missing else object()

    monkeypatch.setattr("hpc_llm.reporting.write.find_spec", find)
    logs = tmp_path / "logs"
    write_run(logs, Made(run_id="r1", cluster="local", method="z2"))
    code = command(["report", str(logs), "-o", str(tmp_path / "out")])
    said = capsys.readouterr()
    assert (code, said.err.count("pip install")) == (0, 1) and left in said.err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"index.html", "results.csv", "results.md", "results.tex"} <= names
    assert any(name.endswith(".png") for name in names) is ("matplotlib" not in missing)
    page = (tmp_path / "out" / "index.html").read_text()
    assert ("Plots by Vega-Lite" in page) is ("vl_convert" not in missing) and "z2" in page
