"""The search for the micro batch: what was tried, which try comes next, what was found. Standard library only."""
