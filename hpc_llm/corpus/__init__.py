"""Prepared data: tokens in flat files that each rank maps into its memory, and what is known of them. Standard library only.

Task `prepare` writes them, planning counts their rows, the ranks of a training run read nothing else.
"""
