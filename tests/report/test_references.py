"""Measured beside published figures: a ratio only where size and hardware are the same, else the order of methods."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
from synthetic import A100, V100, Recipe, Site, _one, write_run

from hpc_llm.reporting import collect, make_report, write_report
from hpc_llm.reporting.references import Held
from hpc_llm.reporting.report import Report
