"""Logs of any origin as cleaned text: opened, decompressed, in blocks that know their line numbers."""
