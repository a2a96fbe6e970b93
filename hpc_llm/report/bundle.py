"""The plotting library of the page: Vega-Lite, Vega and vega-embed as one script, from the package vl-convert-python.

Chosen because it draws SVG with ARIA roles and labels of its own, takes CSS variables as colours (so one drawing serves
dark, light and paper), runs without `eval`, and is small: 0.9 MB, where Bokeh has 1.3 MB and Plotly 4.8 MB.
"""

from __future__ import annotations

import subprocess
import sys

from hpc_llm.errors import HpcLlmError

_EXPORTS = "window.vegaEmbed = vegaEmbed;"
_MAKE = f"import sys, vl_convert; sys.stdout.buffer.write(vl_convert.javascript_bundle({_EXPORTS!r}).encode())"


def vega_bundle() -> str:
    """JavaScript that defines `window.vegaEmbed`; takes some seconds.

    It is made in a process of its own: the JavaScript engine in vl-convert aborts its process where a login node limits
    the address space (`ulimit -v`).

    Raises:
        HpcLlmError: vl-convert could not run here.
    """
    made = subprocess.run([sys.executable, "-c", _MAKE], capture_output=True, check=False)
    if made.returncode == 0:
        return f"(() => {{\n{made.stdout.decode()}\n}})();"  # its own names stay inside
    last = made.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
    raise HpcLlmError(
        f"vl-convert could not make the plotting library of the page (exit {made.returncode}: {last[0]}). "
        "Where `ulimit -v` limits the address space, lift it (`ulimit -v unlimited`) or run the report on another machine."
    )
