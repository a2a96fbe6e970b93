"""The shape of a model as memory sees it: how many numbers are where. Sizes are counts of elements."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from hpc_llm.planning.encoder_decoder import EncoderDecoder
from hpc_llm.planning.model import Architecture, Shape, matrices, num_parameters, shared_matrices


@dataclass(frozen=True, kw_only=True)
class Block:
    """Layers that are alike, one after the other."""

    count: int
    matrices: dict[str, tuple[int, int]]
    """Linear layers by name: rows and columns."""
    norms: int
    """Normalisations in one."""
    attentions: int = 1
    others: int = 0
    """Numbers besides the matrices: norms and biases."""

    @property
    def weights(self) -> int:
        """In the matrices of one layer."""
        return sum(rows * columns for rows, columns in self.matrices.values())

    @property
    def parameters(self) -> int:
        """Of one layer."""
        return self.weights + self.others


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A model."""

    parameters: int
    hidden: int
    inner: int
    """Width of the MLP."""
    gates: int
    """Matrices of the MLP that lead into its width."""
    heads: int
    attention: int
    """Width of the queries, all heads together."""
    keys: int
    """Width of the keys, and of the values."""
    vocabulary: int
    is_tied: bool
    """Whether the output head is the input embedding."""
    blocks: tuple[Block, ...]
    never_quantized: tuple[str, ...] = ()
    """Linear layers that stay as they are in a quantized model, by name."""
    doubt: str = ""
    """Why no run of such a model may tell what it takes, in words; empty where some were measured."""

    @property
    def layers(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def root(self) -> int:
        """Numbers outside the layers."""
        return self.parameters - sum(block.count * block.parameters for block in self.blocks)

    @property
    def in_matrices(self) -> int:
        """In the linear layers of all blocks, the output head apart."""
        return sum(block.count * block.weights for block in self.blocks)

    def quantizable(self) -> Iterator[tuple[int, int, int]]:
        """Linear layers that a quantized model packs: how many, and the rows and columns of each."""
        for block in self.blocks:
            for name, (rows, columns) in block.matrices.items():
                if name not in self.never_quantized:
                    yield block.count, rows, columns

    @property
    def largest_matrix(self) -> int:
        """Of the blocks."""
        return max(rows * columns for block in self.blocks for rows, columns in block.matrices.values())

    @property
    def largest_layer(self) -> int:
        return max(block.parameters for block in self.blocks)

    def adapted(self, targets: str | Collection[str], rank: int) -> int:
        """Numbers of adapters of that rank on the layers of those names, `all-linear` for all."""
        return sum(
            block.count * rank * (rows + columns)
            for block in self.blocks
            for name, (rows, columns) in block.matrices.items()
            if isinstance(targets, str) or name in targets
        )


def shared(sizes: Sizes, ranks: int) -> Sizes:
    """What one of so many ranks has of a model whose layers they share; what is not in the layers it has whole."""
    if ranks == 1:
        return sizes
    blocks = tuple(replace(block, matrices=shared_matrices(block.matrices, ranks)) for block in sizes.blocks)
    elsewhere = sizes.in_matrices - sum(block.count * block.weights for block in blocks)
    return replace(
        sizes,
        parameters=sizes.parameters - elsewhere,
        inner=sizes.inner // ranks,
        heads=sizes.heads // ranks,
        attention=sizes.attention // ranks,
        keys=sizes.keys // ranks,
        blocks=blocks,
    )


def sizes_of(shape: Shape) -> Sizes:
    """Of an architecture."""
    return _of_t5(shape) if isinstance(shape, EncoderDecoder) else _of_decoder(shape)


def _of_decoder(shape: Architecture) -> Sizes:
    keys = shape.num_key_value_heads * shape.head_dim
    bias = shape.hidden_size + 2 * keys if shape.qkv_bias else 0
    block = Block(count=shape.num_hidden_layers, matrices=matrices(shape), norms=2, others=bias + 2 * shape.hidden_size)
    return Sizes(
        parameters=num_parameters(shape),
        hidden=shape.hidden_size,
        inner=shape.intermediate_size,
        gates=2,
        heads=shape.num_attention_heads,
        attention=shape.hidden_size,
        keys=keys,
        vocabulary=shape.vocab_size,
        is_tied=shape.tie_word_embeddings,
        blocks=(block,),
    )


def _of_t5(shape: EncoderDecoder) -> Sizes:
    width, inner, queries = shape.hidden_size, shape.intermediate_size, shape.num_attention_heads * shape.head_dim
    names = ("wi_0", "wi_1") if shape.is_gated else ("wi",)
    mlp = {**dict.fromkeys(names, (inner, width)), "wo": (width, inner)}
    attention = {**dict.fromkeys(("q", "k", "v"), (queries, width)), "o": (width, queries)}
    across = {f"cross {name}": size for name, size in attention.items()}
    encoder = Block(count=shape.num_hidden_layers, matrices=attention | mlp, norms=2, others=2 * width)
    decoder = Block(
        count=shape.num_decoder_layers,
        matrices=attention | across | mlp,
        norms=3,
        attentions=2,
        others=3 * width,
    )
    return Sizes(
        parameters=num_parameters(shape),
        hidden=width,
        inner=inner,
        gates=len(names),
        heads=shape.num_attention_heads,
        attention=queries,
        keys=queries,
        vocabulary=shape.vocab_size,
        is_tied=shape.tie_word_embeddings,
        blocks=(encoder, decoder),
        never_quantized=("wo",),  # which transformers keeps as it is, and so does the worker
        doubt="an encoder and a decoder: counted from its layers, no such run was measured",
    )
