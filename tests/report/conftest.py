"""A study of 77 made-up runs, its report, and a browser to look at it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from synthetic import study

from hpc_llm.reporting import Report, collect, make_report, write_report

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1400,900"
).split()


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs."""
    folder = tmp_path_factory.mktemp("study") / "logs"
    folder.mkdir()
    assert len(study(folder)) >= 40
    return folder


@pytest.fixture(scope="session")
def report(logs: Path) -> Report:
    return make_report(collect([logs]))


@pytest.fixture(scope="session")
def written(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all files of the report."""
    folder = tmp_path_factory.mktemp("report")
    write_report(report, folder)
    return folder


@pytest.fixture(scope="session")
def browser(tool: Callable[[str, str], str]) -> Iterator[Chrome]:
    """A headless Chromium whose console and network can be read."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = tool("chromium", "chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(tool("chromedriver", "chromium-driver"))
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = Chrome(options=options, service=service)
        try:
            yield driver
        finally:
            driver.quit()
