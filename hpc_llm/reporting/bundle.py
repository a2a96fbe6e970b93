"""The plotting library of the page: Vega-Lite, Vega and vega-embed as one script, from the package vl-convert-python.

Chosen because it draws SVG with ARIA roles and labels of its own, takes CSS variables as colours (so one drawing serves
dark, light and paper), runs without `eval`, and is small: 0.9 MB, where Bokeh has 1.3 MB and Plotly 4.8 MB.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from hpc_llm.errors import HpcLlmError
from hpc_llm.records.files import is_private_folder, read_own, write_output
from hpc_llm.site.profiles import user_cache
from hpc_llm.text.json_text import DamagedRecordError

# Without the working directory, in which anything may be called like the package.
_EXPORT = "window.vegaEmbed = vegaEmbed;"
_PROGRAM = f"""
import sys
sys.path = [folder for folder in sys.path if folder]
import vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle({_EXPORT!r}).encode())
"""


def vega_bundle() -> str:
    """JavaScript that defines `window.vegaEmbed` and nothing else; the first time on a machine it takes some seconds, and no
    network.

    It is kept in the user's cache, and taken from there only where nobody else can write. Raises HpcLlmError where it
    cannot be made.
    """
    file = _kept_in()
    if file is not None and (kept := _kept(file)) is not None:
        return kept
    made = f"(() => {{\n{_made()}\n}})();"
    if file is not None:
        with contextlib.suppress(OSError):  # a home folder over its quota is no reason to have no page
            write_output(file, f"{sha256(made.encode()).hexdigest()}\n{made}")
    return made


def _kept_in() -> Path | None:
    """The file for what this version of the package makes; None where there is no folder of this user's alone."""
    folder = user_cache() / "plotting"
    try:
        version = importlib.metadata.version("vl-convert-python")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_private = is_private_folder(folder)
    except (OSError, importlib.metadata.PackageNotFoundError):
        return None
    of = sha256(_PROGRAM.encode()).hexdigest()[:8]
    return folder / f"vega-{version}-{of}.js" if is_private else None


def _kept(file: Path) -> str | None:
    """What was kept, where it is whole: with its digest in the first line."""
    try:
        digest, _, script = read_own(file).partition(b"\n")
    except (OSError, DamagedRecordError):
        return None
    return script.decode() if sha256(script).hexdigest().encode() == digest else None


def _made() -> str:
    """A process of its own makes it: the engine takes 100 MB that would stay beside the runs and the plots."""
    try:
        made = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=False)
    except OSError:  # this Python may be one that cannot be started anew
        import vl_convert

        return str(vl_convert.javascript_bundle(_EXPORT))
    if made.returncode:
        said = made.stderr.decode("utf-8", "replace").strip().splitlines()
        raise HpcLlmError(f"vl-convert-python made no plotting library: {said[-1] if said else made.returncode}")
    return made.stdout.decode()
