"""What config.json leaves to transformers, by family: matrices of the MLP, a tied head, the width of an attention head. Standard library only.

Of transformers 5.24.0, each family's sizes held to those of its model (tests/worker/test_known_families.py); the defaults are those of 4.50 too.
"""

from __future__ import annotations

from hpc_llm.immutable import dataclass

_TWO_MATRICES = frozenset(
    """
    apertus apertus1p5_text arcee gpt_neox jais2 nanochat nemotron persimmon phi starcoder2
    """.split()
)
"""Families whose MLP leads in by one matrix and out by another, with no gate."""
_GATED = frozenset(
    """
    bitnet cohere cohere2 cwm diffllama doge ernie4_5 exaone exaone4 gemma gemma2 gemma3_text glm glm4 granite
    granite_swa helium hunyuan_v1_dense hyperclovax internlm3 iquestcoder llama ministral ministral3 mistral
    olmo olmo2 olmo3 phi3 qwen2 qwen3 seed_oss smollm3 stablelm vaultgemma
    """.split()
)
"""Families whose layers are Llama's, as far as numbers go."""
_TIED = frozenset(
    """
    cohere cohere2 ernie4_5 gemma gemma2 gemma3_text granite_swa smollm3 starcoder2
    vaultgemma
    """.split()
)
"""Those whose output head is the embedding where config.json does not say it: transformers leaves out what is its default."""
_HEADS = {
    **dict.fromkeys("cwm ernie4_5 glm glm4 helium internlm3 iquestcoder ministral3 qwen3 seed_oss".split(), 128),
    **dict.fromkeys("gemma gemma2 gemma3_text vaultgemma".split(), 256),
}
"""Width of a head where config.json says none, and it is not the width of the model shared evenly."""
_OTHERS = frozenset(
    """
    afmoe aria_text axk1 axk2 bailing_hybrid bamba beam bert bert-generation big_bird biogpt camembert cohere2_moe
    cohere_compass_text data2vec-text deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 dory dots1
    dots3_note_text electra ernie ernie4_5_moe exaone_moe falcon_h1 flex_olmo flint gemma3n_text
    gemma4_assistant gemma4_text gemma4_unified_text git glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss granitemoe
    granitemoe_swa granitemoehybrid granitemoeshared hrm_text hunyuan_v1_moe hy_v3 hy_v4 inkling2_loop_text
    inkling2_text inkling_text jamba jetmoe kimi_linear laguna lfm2 lfm2_moe lfm3 llama4_text longcat_flash
    megatron-bert mellum mimo_v2_flash minicpm3 minimax minimax_m2 minimax_m3_vl_text mixtral
    modernbert-decoder nemotron_h olmo_hybrid olmoe phi4_multimodal phimoe qwen2_moe qwen3_5_text qwen3_moe
    qwen3_next recurrent_gemma rembert roberta roberta-prelayernorm roc_bert roformer sarvam_mla sarvam_moe
    xlm-roberta xlm-roberta-xl xmod youtu zamba zamba2
    """.split()
)
"""Families in the same words whose layers hold other matrices: experts, state spaces, low ranks, learned positions, layers that are not all alike."""


@dataclass(frozen=True, kw_only=True)
class FamilyFacts:
    """Of one family."""

    gates: int = 2
    """Matrices of the MLP that lead into its width."""
    is_tied: bool = False
    """Where config.json does not say it."""
    head_dim: int | None = None
    """Where config.json does not say it; None: the heads share the width of the model."""
    is_known: bool = False
    """Whether its layers were looked at."""


def facts_of(family: str) -> FamilyFacts | None:
    """None of a family that is known to have other layers; of one that is not known, what most have."""
    if family in _OTHERS:
        return None
    is_known = family in _TWO_MATRICES or family in _GATED
    gates = 1 if family in _TWO_MATRICES else 2
    return FamilyFacts(gates=gates, is_tied=family in _TIED, head_dim=_HEADS.get(family), is_known=is_known)
