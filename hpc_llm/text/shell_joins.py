"""Words as a shell joins them: lines that go on behind a backslash, and quotes in the midst of a word. Standard library only."""

from __future__ import annotations

from hpc_llm.text.late_pattern import late_pattern

_CONTINUED = late_pattern(r"([ \t]{0,80})\\\r?\n([ \t]{0,80})")
_BETWEEN = late_pattern(r"""(?<=[\w=+/.-])(?:""|''|"'|'")(?=[\w+/.-])|(?<==)(?:""(?=')|''(?="))""")
"""Where one quoted part ends and the next begins, or an empty one stands."""
_BEFORE = late_pattern(r"""(?<![\w"'])(["'])([\w+/.-]{1,200})\1(?=[A-Za-z0-9])""")
_BEHIND = late_pattern(r"""(?<=[\w.+/-]{2})(["'])([\w+/.-]{1,200})\1(?!\w)""")
"""A quoted part before or behind a plain one; one letter before a quote is the prefix of a text in source."""


def lines_joined(text: str) -> str:
    """`text` with each line that goes on joined to the next.

    >>> lines_joined("a --pass \\\\\\n   b"), lines_joined("export TOK\\\\\\nEN=x")
    ('a --pass b', 'export TOKEN=x')
    """
    return _CONTINUED.sub(lambda found: " " if found[1] or found[2] else "", text) if "\\" in text else text


def words_joined(text: str) -> str:
    """`text` without the quotes within its words.

    >>> words_joined("A=''b 'hf_'abc"), words_joined("don't say 'yes'")
    ('A=b hf_abc', "don't say 'yes'")
    """
    if '"' not in text and "'" not in text:
        return text
    return _BEHIND.sub(r"\2", _BEFORE.sub(r"\2", _BETWEEN.sub("", text)))
