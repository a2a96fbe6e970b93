"""T5 with an output head of its own, which from version 1.1 on (and so Flan-T5) is not the embedding.

transformers 5 ties the two always, and unties them where it sees different values in a checkpoint. Under ZeRO-3 it looks at
empty parts, finds them equal and ties what is apart, without a word; a model with random weights it ties anyway. To tell it
otherwise in the config would untie the embeddings of encoder and decoder as well.
"""

from __future__ import annotations

from typing import Any

HEAD = "lm_head.weight"


def has_own_head(config: Any) -> bool:
    """Whether this is the config object of such a T5; before version 5 transformers made it right by itself."""
    return getattr(config, "model_type", "") == "t5" and getattr(config, "scale_decoder_outputs", None) is False


def class_with_own_head() -> Any:
    """transformers' class with the head left out of what is tied, and given first values that begin near a uniform guess."""
    from transformers import T5ForConditionalGeneration as Known
    from transformers import initialization as init

    class T5ForConditionalGeneration(Known):  # type: ignore[misc]
        @classmethod
        def from_config(cls, config: Any, **how: Any) -> Any:
            return cls._from_config(config, **how)

        def _init_weights(self, module: Any) -> None:
            super()._init_weights(module)
            head = getattr(module, "lm_head", None)
            if isinstance(module, Known) and head is not None:
                init.normal_(head.weight, std=self.config.d_model**-0.5)  # leaves alone what was loaded

    T5ForConditionalGeneration._tied_weights_keys = {k: v for k, v in Known._tied_weights_keys.items() if k != HEAD}
    # transformers gives no first values to what a class of others holds by its parts alone.
    T5ForConditionalGeneration.__module__ = Known.__module__
    return T5ForConditionalGeneration
