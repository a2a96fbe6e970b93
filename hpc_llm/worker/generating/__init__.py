"""Generating: queries, keys and values of a fixed size, the passes, the choice of a token. Timing is `measure`'s, the result `answers`'."""
