"""The plotting library of the page: Vega-Lite, Vega and vega-embed as one script, from the package vl-convert-python.

Chosen because it draws SVG with ARIA roles and labels of its own, takes CSS variables as colours (so one drawing serves
dark, light and paper), runs without `eval`, and is small: 0.9 MB, where Bokeh has 1.3 MB and Plotly 4.8 MB.
"""

from __future__ import annotations


def vega_bundle() -> str:
    """JavaScript that defines `window.vegaEmbed` and nothing else; takes some seconds and no network."""
    import vl_convert

    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"(() => {{\n{bundle}\n}})();"
