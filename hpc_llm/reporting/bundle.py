"""The plotting library of the page: Vega-Lite, Vega and vega-embed as one script, from the package vl-convert-python.

Chosen because it draws SVG with ARIA roles and labels of its own, takes CSS variables as colours (so one drawing serves
dark, light and paper), runs without `eval`, and is small: 0.9 MB, where Bokeh has 1.3 MB and Plotly 4.8 MB.
"""

from __future__ import annotations

import subprocess
import sys

from hpc_llm.errors import HpcLlmError

# Without the working directory, in which anything may be called like the package.
_EXPORT = "window.vegaEmbed = vegaEmbed;"
_PROGRAM = f"""
import sys
sys.path = [folder for folder in sys.path if folder]
import vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle({_EXPORT!r}).encode())
"""


def vega_bundle() -> str:
    """JavaScript that defines `window.vegaEmbed` and nothing else; takes some seconds and no network.

    A process of its own makes it: the engine takes 100 MB that would stay beside the runs and the plots. Raises HpcLlmError
    where it fails.
    """
    return f"(() => {{\n{_made()}\n}})();"


def _made() -> str:
    try:
        made = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=False)
    except OSError:  # this Python may be one that cannot be started anew
        import vl_convert

        return str(vl_convert.javascript_bundle(_EXPORT))
    if made.returncode:
        said = made.stderr.decode("utf-8", "replace").strip().splitlines()
        raise HpcLlmError(f"vl-convert-python made no plotting library: {said[-1] if said else made.returncode}")
    return made.stdout.decode()
