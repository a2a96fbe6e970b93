"""Bringing models and data sets to this file system: whole, checked, and going on where an earlier try ended."""
