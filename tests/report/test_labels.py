"""What stands beside axes and in legends tells rows apart at the length that is shown, and a star tells something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_repeats import ONE, compared, run

from hpc_llm.parsing import Row
from hpc_llm.reporting.collect import ReportedRun
from hpc_llm.reporting.comparison import best, has_several_data
from hpc_llm.reporting.figure import Figure
from hpc_llm.reporting.figures import method_names
from hpc_llm.reporting.labels import LONGEST, apart, shown_value
from hpc_llm.reporting.metric import TOKENS
from hpc_llm.reporting.plots import draw, method_styles
from hpc_llm.reporting.report import make_report

LONG = ["ddp [resume=/a/very/long/way/to/a/folder/of/logs/one, batch=" + end for end in ("1]", "2]", "3]")]


def ran(plan: dict[str, Any], version: str) -> ReportedRun:
    """A run that came to say its software."""
    return ReportedRun(row=Row(**ONE), plan=plan, result={"versions": {"torch": version}})


def test_short_names_are_different_where_the_long_ones_are() -> None:
    for names in (
        LONG,
        ["x" * 60 + "y" * 60, "x" * 61 + "y" * 59],
        [f"{'a' * 30}{k:03d}{'b' * 30}" for k in range(120)],
    ):
        found = apart(names)
        assert len(set(found.values())) == len(names) and max(map(len, found.values())) <= LONGEST


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("/home/me/logs/longone", "longone"),
        (["/w/qa.jsonl", "validation=/w/dev.jsonl"], "qa.jsonl + validation=dev.jsonl"),
        ([], "none"),
        ("a/b is no path from the root", "a/b is no path from the root"),
        (True, "True"),
    ],
)
def test_paths_are_shown_by_their_last_part(value: Any, shown: str) -> None:
    assert shown_value(value) == shown


def test_a_run_and_the_one_that_goes_on_from_it_are_told_apart_by_that() -> None:
    resumed = ran({"resume": "/home/me/logs/longone", "steps": 400}, "2.9")
    table = compared(run({"steps": 400}, outcome="CANCELLED"), resumed)
    labels = sorted(row["configuration"] for row in table)
    assert labels == ["", "resume=longone"]  # and nothing of versions that one of them did not come to tell


def test_a_row_without_a_setting_says_so_only_where_others_have_the_same_value() -> None:
    def labels(*amounts: str | None) -> list[str]:
        table = compared(*(run({"steps": 10, "mem": one}) for one in amounts))
        return sorted(row["configuration"] for row in table)

    assert labels(None, "2048M") == ["", "mem=2048M"]
    assert labels(None, "1G", "2G") == ["", "mem=1G", "mem=2G"]
    assert labels(None, "2G", "2G") == ["", "without mem"]
    assert labels(None, None) == [""]


def test_different_files_of_one_name_are_numbered() -> None:
    table = compared(*(run({"data": [f"/{place}/qa.jsonl"]}) for place in ("one", "two")))
    assert sorted(row["configuration"] for row in table) == ["data=qa.jsonl #1", "data=qa.jsonl #2"]


def test_settings_whose_names_end_alike_are_told_apart_by_what_holds_them() -> None:
    def set_to(**config: Any) -> ReportedRun:
        return run(
            {
                "engine.deepspeed.zero_optimization.stage": 2,
                **{f"engine.deepspeed.{k.replace('__', '.')}": v for k, v in config.items()},
            }
        )

    table = compared(
        set_to(offload_optimizer__pin_memory=False), set_to(offload_param__pin_memory=False), set_to(amp__enabled=False)
    )
    labels = " ".join(row["configuration"] for row in table)
    assert "#" not in labels and "offload_optimizer.pin_memory=" in labels and "offload_param.pin_memory=" in labels
    assert "amp.enabled=" in labels


def test_software_that_is_known_still_tells_runs_apart() -> None:
    table = compared(ran({"steps": 4}, "2.9"), ran({"steps": 4}, "2.10"))
    assert sorted(row["configuration"] for row in table) == ["torch=2.10", "torch=2.9"]


def drawn(kind: str, names: list[str]) -> Figure:
    records = [
        {
            "row": k,
            "panel": "local",
            "method": name,
            "name": name,
            "run": name,
            "x": float(x),
            "y": 1.0,
            "low": None,
            "high": None,
        }
        for k, name in enumerate(names)
        for x in (1, 2)
    ]
    return Figure(
        kind=kind, section="s", title="Loss", caption="", x_title="x", y_title="y", records=records, headers=[], cells=[],
        panels=["local"],
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["loss", "memory", "rates", "bars"])
@pytest.mark.parametrize("letter", ["W", "m", "."])
def test_nothing_of_a_plot_is_cut_at_its_edge(kind: str, letter: str) -> None:
    names = [f"{letter * (LONGEST - 1)}{k}" for k in range(5)]
    figure = drawn(kind, names)
    canvas = draw(figure, f"Loss: {'a model · ' * 12}end", method_styles(method_names([figure])))
    canvas.draw_without_rendering()
    width, height = canvas.get_size_inches() * canvas.dpi
    texts = [
        *canvas.legends,
        canvas._suptitle,
        *(text for ax in canvas.axes for text in (*ax.get_yticklabels(), ax.title)),
    ]
    for one in texts:
        box = one.get_window_extent()
        assert box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1, (one, box, width)
    assert canvas.axes[0].get_position().width > 0.15, "the labels leave nothing of the plot"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("kind", "panels", "many"),
    [
        ("loss", 1, 16), ("loss", 2, 5), ("loss", 5, 16), ("memory", 2, 16), ("memory", 3, 1), ("tries", 1, 16), ("tries", 2, 5), ("scaling", 2, 16),
        ("scaling", 3, 1),
    ],
)  # fmt: skip
def test_panels_keep_their_size_beside_long_titles_and_many_names(kind: str, panels: int, many: int) -> None:
    """Nothing of a panel lies below the legend, and none is pressed together or cut."""
    figure = drawn(kind, [f"{'m' * 30} {k}" for k in range(many)])
    points = [{**one, "fits": True, "ideal": 1.0} for one in figure.records]
    titles = [f"a cluster · a model · sequence length {k}" for k in range(panels)]
    figure = replace(figure, panels=titles, records=[{**one, "panel": title} for title in titles for one in points])
    canvas = draw(figure, "Loss", method_styles(method_names([figure])))
    canvas.draw_without_rendering()
    width, _ = canvas.get_size_inches() * canvas.dpi
    legend = canvas.legends[0].get_window_extent()
    for ax in canvas.axes:
        box = ax.get_window_extent()
        assert box.width > 1.8 * canvas.dpi and box.height > 1.5 * canvas.dpi, (box, width)
        assert ax.get_tightbbox().y0 >= legend.y1 - 1 and ax.get_tightbbox().x1 <= width + 1


def test_a_star_is_given_among_rows_on_the_same_data_alone() -> None:
    fast, slow = (
        run({"data": ["/w/a"]}, method="a", tokens_per_second=9.0),
        run({"data": ["/w/b"]}, method="b", tokens_per_second=1.0),
    )
    assert best(compared(fast, slow)) == {} and has_several_data(compared(fast, slow))
    same = compared(fast, run({"data": ["/w/a"]}, method="c", tokens_per_second=5.0), slow)
    [top] = best(same)[TOKENS.name]
    assert same[top]["method"] == "a"
    assert not has_several_data(compared(run(method="a"), run(method="b")))


@pytest.mark.parametrize(
    ("rates", "is_clear"),
    [
        ({"a": [100.0, 101.0], "b": [50.0, 51.0]}, True),
        ({"a": [3000.0, 4800.0], "b": [2700.0, 3800.0]}, False),
        ({"a": [3000.0, 4800.0], "b": [2700.0]}, False),
        ({"a": [3900.0], "b": [3899.0]}, True),
    ],
)
def test_a_star_is_given_where_the_intervals_do_not_overlap(rates: dict[str, list[float]], is_clear: bool) -> None:
    table = compared(*(run(method=name, tokens_per_second=rate) for name, values in rates.items() for rate in values))
    assert [table[row]["method"] for row in best(table).get(TOKENS.name, ())] == (["a"] if is_clear else [])


def test_a_note_tells_what_rows_have_that_do_not_name_what_others_name() -> None:
    """Of one value; nothing where these rows have several, or none."""

    def plan(lr: float, **more: Any) -> dict[str, Any]:
        return {"optimizer": {"lr": lr, "type": "AdamW"}, "steps": 40, **more}

    def notes(*runs: ReportedRun) -> list[str]:
        return [one for one in make_report(runs).notes if one.startswith("Rows that do not name")]

    most = [run(plan(8e-4), kind="train", method=name) for name in ("ddp", "z1", "z2")]
    said = "Rows that do not name a setting which others of their table name have {} (m · micro batch 1 · sequence length 350)."
    assert notes(*most, run(plan(1e-3), kind="train", method="lora")) == [said.format("lr=0.0008")]
    assert notes(*most, run({**plan(8e-4), "steps": 90}, kind="train", method="lora")) == [said.format("steps=40")]
    assert notes(*most) == []
    resumed = run(plan(8e-4, resume="/home/me/logs/one"), kind="train", method="ddp")
    assert notes(*most, resumed) == []
