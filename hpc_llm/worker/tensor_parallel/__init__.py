"""Layers that several ranks share: each has some of the heads and of the MLP's width, and their results are summed.

Attention and MLP of a decoder layer are split by the rows of the matrices that lead in and by the columns of the one that leads
out, so that a layer needs two sums forward and two backward. Embeddings, norms and the output head are whole on each rank.
"""
