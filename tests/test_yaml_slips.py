"""A beginner's slips in YAML are told where they began, with what to write."""

from __future__ import annotations

import pytest

from hpc_llm.errors import ProfileError
from hpc_llm.text.yaml_text import parse_yaml


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cluster:local\nmodel: tiny\n", "line 1: not valid YAML: a blank is needed after the colon"),
        ("cluster: local\nmodel: tiny\nmethod z3\n", "line 3: not valid YAML: a key without its colon"),
        ("cluster: local\nname: exp: one\n", "line 2: not valid YAML: a second colon in one line: quote the value"),
        ('a: b\nmodel: "tiny\nmethod: z3\n', "line 2: not valid YAML: a quote is opened here and never closed"),
        ("a: b\n\tc: d\n", "line 2: not valid YAML: a tab: YAML is indented by blanks"),
        ("a:\n\tb: c\n", "line 2: not valid YAML: a tab: YAML is indented by blanks"),
        ("set:\n  x: 1\n\ty: 2\n", "line 3: not valid YAML: a tab: YAML is indented by blanks"),
        ("\ta: b\n", "line 1: not valid YAML: a tab: YAML is indented by blanks"),
        (
            "a: b\nlaunch {one: x, all: [x, y]}\n",
            "line 2: not valid YAML: a key without its colon: write launch: {...}",
        ),
        ("a: b\n  c: d\n", "line 2: not valid YAML: mapping values"),
    ],
)
def test_a_slip_is_told_where_it_began(text: str, told: str) -> None:
    with pytest.raises(ProfileError, match=f"^f, {told}"):
        parse_yaml(text, "f")
