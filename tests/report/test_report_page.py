"""The page in a real browser, opened from the file, and what is in it before any script runs."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from recorded import write_telemetry
from synthetic import HOSTILE_CLUSTER, HOSTILE_METHOD, SCRIPT_END, Made, write_run

from hpc_llm.reporting import Report, collect, make_report, read_baseline, write_report

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

LARGEST = 2_000_000
"""Bytes of a page of this study."""


@pytest.fixture(scope="module")
def text(written: Path) -> str:
    return (written / "index.html").read_text(encoding="utf-8")


@pytest.fixture
def page(browser: Chrome, written: Path) -> Iterator[Chrome]:
    """The page, drawn, on a desktop in light colours."""
    _screen(browser, 1400, "light")
    _open(browser, written)
    yield browser
    browser.get_log("browser")
    browser.get_log("performance")


def _screen(browser: Chrome, width: int, scheme: str, media: str = "") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def _open(browser: Chrome, written: Path) -> None:
    browser.get((written / "index.html").as_uri())
    _wait(browser, "return document.documentElement.dataset.ready === 'yes'")


def _wait(browser: Chrome, condition: str) -> None:
    deadline = time.monotonic() + 120
    while not browser.execute_script(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


def _data(text: str) -> dict[str, Any]:
    """What the script of the page reads."""
    data = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', text)
    assert data is not None
    found: dict[str, Any] = json.loads(data[1])
    return found


def _column(page: Chrome, name: str, section: str = "s1") -> list[str]:
    """The values by which the visible rows of a table are sorted."""
    script = """
        const table = document.querySelector(`#${arguments[1]} .runs`);
        const at = [...table.tHead.rows[0].cells].findIndex((c) => c.innerText.startsWith(arguments[0]));
        return [...table.tBodies[0].rows].filter((r) => !r.hidden).map((r) => r.cells[at].dataset.value);"""
    return page.execute_script(script, name, section)


def _header(page: Chrome, name: str, section: str = "s1") -> Any:
    buttons = page.find_elements("css selector", f"#{section} .runs thead button")
    return next(button for button in buttons if button.text.startswith(name))


def test_page_is_one_small_file_that_names_no_other(text: str, report: Report) -> None:
    assert len(text.encode()) < LARGEST
    markup = re.sub(r"(?s)<script.*?</script>|<style.*?</style>", "", text)
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", markup)
    assert "url(" not in text.split("<script", 1)[0]
    assert len(re.findall(r'<tr role="row" id="row-', markup)) == len(report.compared)


def test_hostile_names_are_text(text: str) -> None:
    assert HOSTILE_CLUSTER not in text and "<img src=x" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    known = _data(text)
    assert {HOSTILE_METHOD, "<img src=x onerror=alert(2)>"} <= set(known["methods"])
    assert SCRIPT_END.rstrip() in known["items"]


def test_units_are_in_the_headers_and_gib_is_explained(text: str) -> None:
    assert "Peak allocated <small>(GiB)</small>" in text and "Step p50 <small>(s)</small>" in text
    assert "GiB is 2^30 bytes" in text


def test_opens_from_the_file_without_errors_or_requests(page: Chrome) -> None:
    assert page.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    urls = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert urls and {url.split(":", 1)[0] for url in urls} <= {"file", "data", "chrome"}
    assert page.execute_script("return document.querySelectorAll('script[src], img, iframe').length") == 0
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_nothing_hostile_ran(page: Chrome) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    page.execute_script("document.querySelector('#row-0 button').click()")
    with pytest.raises(NoAlertPresentException):
        _ = page.switch_to.alert.text
    assert HOSTILE_CLUSTER in page.find_element("css selector", "main").text


def test_every_figure_is_drawn_with_words_and_a_table(page: Chrome) -> None:
    figures = page.find_elements("css selector", "figure")
    assert len(figures) == 7
    for figure in figures:
        drawing = figure.find_element("css selector", ".plot svg")
        assert drawing.size["width"] > 300 and drawing.size["height"] > 60
        assert drawing.find_elements("css selector", ".mark-symbol path, .mark-line path")
        assert len(figure.find_element("css selector", "figcaption p").text) > 40
        assert figure.find_elements("css selector", "details tbody tr")
    labels = page.execute_script(
        "return [...document.querySelectorAll('.plot')].map((s) => [s.getAttribute('role'), s.getAttribute('aria-label')])"
    )
    assert all(role == "graphics-document" and len(label) > 40 for role, label in labels)


def test_a_click_sorts_and_blanks_stay_last(page: Chrome) -> None:
    button = _header(page, "Tokens/s")
    for order, reverse in (("descending", True), ("ascending", False)):
        button.click()
        values = _column(page, "Tokens/s")
        known = [float(v) for v in values if v]
        assert known == sorted(known, reverse=reverse) and len(known) > 20
        assert values[len(known) :] == [""] * (len(values) - len(known)) and len(values) > len(known)
        header = button.find_element("xpath", "./ancestor::th")
        assert header.get_attribute("aria-sort") == order
        assert page.find_element("id", "announce").get_attribute("textContent") == f"Sorted by Tokens/s, {order}."
    assert len(page.find_elements("css selector", '#s1 th[aria-sort]:not([aria-sort="none"])')) == 1


def test_keys_sort_and_filter(page: Chrome) -> None:
    from selenium.webdriver.common.keys import Keys

    button = _header(page, "Peak allocated")
    page.execute_script("arguments[0].focus()", button)
    page.switch_to.active_element.send_keys(Keys.ENTER)
    values = [float(v) for v in _column(page, "Peak allocated") if v]
    assert values == sorted(values), "lowest first, for less memory is better"
    page.switch_to.active_element.send_keys(Keys.SPACE)
    assert [float(v) for v in _column(page, "Peak allocated") if v] == sorted(values, reverse=True)
    search = page.find_element("id", "filter-text")
    search.send_keys("z3 delta")
    _wait(page, "return document.getElementById('count').textContent !== '51 of 51 rows'")
    shown = _column(page, "Cluster")
    assert shown and set(shown) == {"delta"}
    search.send_keys(Keys.TAB)
    assert page.switch_to.active_element.get_attribute("id") == "filter-cluster"


def test_filters_narrow_tables_and_plots_and_say_how_many(page: Chrome) -> None:
    def points() -> int:
        return len(page.find_elements("css selector", "#memory-s1 .mark-symbol.role-mark path"))

    before = points()
    page.execute_script(
        "const s = document.getElementById('filter-outcome'); s.value = 'OOM_DEVICE'; s.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    _wait(page, "return document.getElementById('count').textContent.startsWith('6 of')")
    assert page.find_element("id", "count").get_attribute("aria-live") == "polite"
    assert not page.find_element("id", "s2").is_displayed()
    assert "No row of the filter is in this plot." in page.find_element("id", "memory-s1").text
    page.find_element("css selector", ".filters button[type=reset]").click()
    _wait(page, "return document.getElementById('count').textContent === '51 of 51 rows'")
    _wait(page, "return document.querySelector('#memory-s1 svg') !== null")
    assert points() == before


def test_a_filter_that_matches_nothing_says_so(page: Chrome) -> None:
    page.find_element("id", "filter-text").send_keys("no such run")
    _wait(page, "return !document.getElementById('nothing').hidden")
    assert page.find_element("id", "count").text == "0 of 51 rows"


def test_plan_versions_and_script_are_one_click_behind_a_row(page: Chrome) -> None:
    from selenium.webdriver.common.keys import Keys

    button = page.find_element("css selector", '#s1 tr[data-cluster="delta"][data-method="q"] .open')
    page.execute_script("arguments[0].focus()", button)
    button.send_keys(Keys.ENTER)
    dialog = page.find_element("id", "behind")
    assert dialog.get_attribute("open") is not None
    assert page.find_element("id", "behind-title").text == "q on delta: 3 runs"
    shown = dialog.text
    for part in ("deepspeed", "0.19.8", "#SBATCH --job-name=q", "sub_group_size", "Measured steps", "0123456789abcdef"):
        assert part in shown, part
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert dialog.get_attribute("open") is None
    assert page.switch_to.active_element == button, "the focus is back where it was"


def test_what_runs_have_in_common_is_in_the_page_once_and_shown_whole(page: Chrome, logs: Path) -> None:
    folder = next(path for path in sorted(logs.iterdir()) if "-delta-qlora-llama2-7b" in path.name)
    page.find_element("css selector", '#s1 tr[data-cluster="delta"][data-method="qlora"] .open').click()
    (script,) = page.find_elements("css selector", '#behind pre[aria-label="Script as submitted"]')
    assert script.get_attribute("textContent") == (folder / "job.sh").read_text()
    shown = page.execute_script(
        "return document.querySelector('#behind pre[aria-label^=\"Result\"]').textContent", script
    )
    result = json.loads((folder / "result.json").read_text())
    assert json.loads(shown) == {name: value for name, value in result.items() if name != "step_times_s"}
    plan = page.find_element("css selector", "#behind table").get_attribute("textContent")
    assert "sub_group_size" in plan and "ACD110018" in plan


def test_a_page_of_many_runs_stays_small_and_answers(browser: Chrome, tmp_path: Path) -> None:
    base = Made(run_id="", cluster="delta", method="z3", steps=200)
    runs = [replace(base, run_id=f"run-{i:03}", method=f"m{i % 10}", seed=i) for i in range(120)]
    for i, run in enumerate(runs):
        write_run(tmp_path / "few" if i < 20 else tmp_path / "more", run)
    sizes = {}
    for name, folders in (("few", ["few"]), ("all", ["few", "more"])):
        write_report(make_report(collect([tmp_path / folder for folder in folders])), tmp_path / name)
        sizes[name] = (tmp_path / name / "index.html").stat().st_size
    assert (sizes["all"] - sizes["few"]) / 100 < 4000, "bytes of one more run"
    data = _data((tmp_path / "all" / "index.html").read_text())
    drawn = [len(line["xs"]) for figure in data["figures"] if figure["kind"] == "loss" for line in figure["records"]]
    assert len(drawn) == 120 and sum(drawn) <= 20_000 + 120
    _screen(browser, 1400, "light")
    _open(browser, tmp_path / "all")
    browser.find_element("id", "filter-text").send_keys("m7")
    _wait(browser, "return document.querySelectorAll('#loss-s1 .mark-line path').length === 12")


def test_a_click_on_a_figure_shows_what_is_behind_it(page: Chrome) -> None:
    page.find_element("css selector", '#s1 tr[data-method="qlora"] td[data-label="MFU (%)"] ~ td.number').click()
    assert "#SBATCH --job-name=qlora" in page.find_element("id", "behind").text


def test_without_scripts_the_tables_are_whole_and_nothing_dead_is_offered(browser: Chrome, written: Path) -> None:
    _screen(browser, 1400, "light")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((written / "index.html").as_uri())
        assert browser.find_element("css selector", "main noscript p").is_displayed()
        assert not browser.find_element("css selector", ".filters").is_displayed()
        assert len(browser.find_elements("css selector", "#s1 .runs tbody tr")) > 20
        browser.find_element("css selector", "#memory-s1 summary").click()
        assert browser.find_element("css selector", "#memory-s1 details table").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_point_of_a_plot_opens_its_row(page: Chrome) -> None:
    from selenium.webdriver import ActionChains

    point = page.find_element("css selector", "#memory-s2 .mark-symbol.role-mark path")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", point)
    ActionChains(page).move_to_element(point).perform()
    _wait(page, "return !document.getElementById('tip').hidden")
    assert "Method: " in page.find_element("id", "tip").text
    ActionChains(page).click(point).perform()
    _wait(page, "return document.getElementById('behind').open")


def test_invalid_runs_are_apart_with_their_reason(page: Chrome) -> None:
    shown = page.find_element("id", "invalid").text
    assert "the loss is not a finite number from step 12 on" in shown
    assert "V100-SXM2-32GB was planned" in shown
    assert "z3-nan" not in page.find_element("id", "s1").text


def test_regressions_are_named_and_ratios_stand_below_the_figures(browser: Chrome, tmp_path: Path) -> None:
    for folder, rate in (("old", 300.0), ("new", 250.0)):
        write_run(tmp_path / folder, Made(run_id=folder, cluster="delta", method="z3", rate_per_gpu=rate))
        write_run(tmp_path / folder, Made(run_id=f"{folder}-q", cluster="delta", method="q", rate_per_gpu=900.0))
    then = (tmp_path / "old", read_baseline(tmp_path / "old"))
    write_report(make_report(collect([tmp_path / "new"]), then), tmp_path)
    _screen(browser, 1400, "light")
    _open(browser, tmp_path)
    assert browser.get_log("browser") == []
    verdict = browser.find_element("id", "verdict").text
    assert "1 regression against" in verdict and "z3 on delta, 8 × V100-SXM2-32GB: tokens/s 16.7 % lower" in verdict
    row = browser.find_element("css selector", 'tr[data-method="z3"]').text
    assert "▼ tokens/s 16.7 % lower" in row and "× 0.833" in row
    assert "no regression" in browser.find_element("css selector", 'tr[data-method="q"]').text


def test_logs_that_say_little_are_named_and_not_compared(browser: Chrome, tmp_path: Path) -> None:
    for name in ("first", "second"):
        lines = [f"iter {i}: loss {5 - i / 50 - len(name) / 9:.4f}, time 100.00ms, mfu 30.00%\n" for i in range(50)]
        (tmp_path / f"{name}.log").write_text("".join(lines))
    (tmp_path / "notes.txt").write_text("nothing of interest\n")
    write_report(make_report(collect([tmp_path])), tmp_path / "out")
    _screen(browser, 1400, "light")
    _open(browser, tmp_path / "out")
    assert browser.get_log("browser") == []
    assert [b.text for b in browser.find_elements("css selector", "#s1 .open")] == ["first", "second"]
    assert browser.find_elements("css selector", ".best") == []
    assert len(browser.find_elements("css selector", "#loss-s1 .mark-line path")) == 2
    legend = browser.find_element("css selector", "#loss-s1 .role-legend").text
    assert all(name in legend for name in ("Run", "first", "second")), "in place of a method that nobody knows"
    assert "1 input in which no known format" in browser.find_element("id", "unread").text
    browser.find_element("css selector", "#s1 .open").click()
    assert "A log of another program" in browser.find_element("id", "behind").text


@pytest.mark.parametrize("width", [390, 320, 1400])
def test_page_does_not_scroll_sideways(browser: Chrome, written: Path, width: int) -> None:
    _screen(browser, width, "light")
    _open(browser, written)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    if width == 390:
        first = browser.find_element("css selector", "#s1 .runs tbody td:nth-child(2)")
        label = "return getComputedStyle(arguments[0], '::before').content"
        assert browser.execute_script(label, first) == '"Cluster"', "each figure carries its name"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_can_be_read(browser: Chrome, written: Path, scheme: str) -> None:
    _screen(browser, 1400, scheme)
    _open(browser, written)
    script = """
        const rgb = (c) => c.match(/\\d+(\\.\\d+)?/g).slice(0, 3).map(Number);
        const page = rgb(getComputedStyle(document.body).backgroundColor);
        const css = (s, p) => [...document.querySelectorAll(s)].map((e) => rgb(getComputedStyle(e)[p]));
        return [page, css("main p, td, th, h1, h2, small, .plot text", "color").concat(css(".plot .mark-text text", "fill")),
                css(".plot .mark-symbol.role-mark path", "fill")];"""
    background, texts, marks = browser.execute_script(script)
    assert (_luminance(background) < 0.1) == (scheme == "dark")
    assert min(_contrast(colour, background) for colour in texts) >= 4.5
    assert min(_contrast(colour, background) for colour in marks) >= 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_how_busy_gpus_were_is_drawn_for_runs_without_a_counterpart_too(
    browser: Chrome, tmp_path: Path, scheme: str
) -> None:
    for name, model in (("z3", "llama2-7b"), ("q", "llama3.2-1b")):
        run = write_run(tmp_path / "logs", Made(run_id=name, cluster="delta", method=name, model=model))
        write_telemetry(run, [0.0, 0.4, 0.9, 1.0])
    write_report(make_report(collect([tmp_path / "logs"])), tmp_path)
    _screen(browser, 1400, scheme)
    _open(browser, tmp_path)
    assert browser.get_log("browser") == []
    figure = browser.find_element("css selector", "#utilization-gpus-over-time")
    assert "2 runs, one line each" in figure.find_element("css selector", "figcaption p").text
    assert len(figure.find_elements("css selector", "details tbody tr")) == 2
    script = """
        const rgb = (c) => c.match(/\\d+(\\.\\d+)?/g).slice(0, 3).map(Number);
        const plot = document.querySelector("#utilization-gpus-over-time .plot");
        const lines = [...plot.querySelectorAll(".mark-line path")];
        const label = plot.getAttribute("aria-label");
        return [rgb(getComputedStyle(document.body).backgroundColor), lines.map((e) => rgb(getComputedStyle(e).stroke)), label];"""
    background, lines, label = browser.execute_script(script)
    assert len(lines) == 2 and label.startswith("GPU utilisation over time. 2 runs")
    assert min(_contrast(colour, background) for colour in lines) >= 3
    search = browser.find_element("id", "filter-text")
    search.send_keys("z3")
    _wait(browser, "return document.querySelectorAll('#utilization-gpus-over-time .mark-line path').length === 1")


def _luminance(rgb: list[float]) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = [c / 255 / 12.92 if c <= 10.31 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: list[float], other: list[float]) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_roles_and_names_for_a_screen_reader(page: Chrome) -> None:
    script = """
        const nameless = [...document.querySelectorAll("button, select, input, section, [role=region]")]
            .filter((e) => !(e.textContent.trim() || e.labels?.length || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby")));
        const headers = [...document.querySelectorAll(".runs thead th")].filter((t) => t.getAttribute("aria-sort") === null);
        const unreachable = [...document.querySelectorAll(".scroll")].filter((e) => e.tabIndex !== 0);
        const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
        return [nameless.length, headers.length, unreachable.length, ids.length - new Set(ids).size];"""
    assert page.execute_script(script) == [0, 0, 0, 0]
    best = page.find_elements("css selector", "td.best")
    assert best and all("best" in e.get_attribute("textContent") and "★" in e.text for e in best if e.is_displayed())


def test_the_header_of_a_long_table_stays_in_view_and_covers_no_focus(page: Chrome) -> None:
    page.execute_script(
        "scrollTo(0, document.querySelector('#s1 .runs tbody tr:nth-child(20)').getBoundingClientRect().top)"
    )
    script = """
        const box = (e) => e.getBoundingClientRect();
        const header = box(document.querySelector("#s1 .runs thead th"));
        return [box(document.querySelector(".filters")).bottom, header.top, header.bottom];"""
    filters, top, bottom = page.execute_script(script)
    assert abs(filters - top) <= 2 and 0 < top < 200
    above = page.find_element("css selector", "#s1 .runs tbody tr:nth-child(12) .open")
    page.execute_script("arguments[0].focus()", above)
    assert page.execute_script("return arguments[0].getBoundingClientRect().top", above) >= bottom


def test_the_list_of_endings_is_filtered_with_the_rows(page: Chrome) -> None:
    shown = "return [...document.querySelectorAll('#ended li')].filter((e) => e.offsetHeight).length"
    assert page.execute_script(shown) == 9
    page.find_element("id", "filter-text").send_keys("stopped at the time limit")
    _wait(page, f"{shown} === 1")
    assert "stopped at the time limit of 1800 s" in page.find_element("id", "ended").text
    page.find_element("css selector", "#ended li:not([hidden]) button").click()
    assert "taiwania2-z3-timeout" in page.find_element("id", "behind").text


def test_printed_form(page: Chrome) -> None:
    printed = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    pages = re.findall(rb"/Type\s*/Page\b(?!s)", printed)
    boxes = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", printed)
    assert 5 <= len(pages) <= 20
    assert {float(w) > float(h) for w, h in boxes} == {True}, "landscape"
    _screen(page, 1000, "dark", media="print")
    hidden = "return ['.filters', '.skip', '.plot + details'].every((s) => getComputedStyle(document.querySelector(s)).display === 'none')"
    assert page.execute_script(hidden)
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.execute_script("return document.documentElement.scrollWidth") <= 1000


def test_browser_fixture_fails_in_ci_without_a_browser(
    tool: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(pytest.fail.Exception, match="chromium is missing: apt-get install chromium"):
        tool("chromium", "chromium")
