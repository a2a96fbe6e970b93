"""Where the checkout is. Not in conftest.py: each folder of tests has one, and only one can be imported by that name."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
