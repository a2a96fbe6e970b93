"""In which part of its work a program was when it failed, by the frames of its traceback and the progress bars above.

What helps where memory runs out while weights are loaded, while an optimizer asks for its states, or while parameters are
gathered to be saved is not what helps in a step: no batch is in the way there.
"""

from __future__ import annotations

import re

from hpc_llm.causes import life
from hpc_llm.causes.tracebacks import LONGEST, TRACEBACK

EVALUATION, LOADING, STATES, SAVING = "evaluation", "loading", "states", "saving"

_WORDS = {
    EVALUATION: re.compile(
        rb", in (?:_?evaluate|evaluation_loop|prediction_(?:loop|step)|validation_step|_?validate|run_validation|nested_concat|(?:torch|numpy)_pad_and_concatenate)\n"
    ),
    # Functions that bring weights onto a device, of libraries, and those of torch's modules that move a model.
    LOADING: re.compile(
        rb", in (?:from_pretrained|_load_pretrained_model|_load_state_dict_into_(?:meta_)?model|load_parameter_into_model|set_module_tensor_to_device"
        rb"|load_checkpoint_(?:in_model|and_dispatch)|load_sharded_checkpoint|load_model|load_weights|dispatch_model|_configure_distributed_model"
        rb"|_zero_init_param)\n|/torch/nn/modules/module\.py\", line \d{1,7}, in (?:convert|load_state_dict|_load_from_state_dict)\n"
    ),
    # Functions that make an optimizer's states, and what of DeepSpeed makes its copies in fp32 before them.
    STATES: re.compile(
        rb", in (?:_init_group|_?initialize_optimizer_states|init_state|_init_state|get_state_buffer|_create_fp32_partitions|_setup_for_real_optimizer|_initialize_state)\n"
        rb"|/optim[^\"\n]{0,100}\", line \d{1,7}, in (?:load_state_dict|_process_value_according_to_param_policy)\n"
        rb"|, in step\n[^\n]{0,40}\bstate\[[^\]\n]{1,40}\] {0,3}= {0,3}torch\.(?:zeros|empty|full)"
    ),
    SAVING: re.compile(
        rb", in (?:_zero3_consolidated_16bit_state_dict|save_16bit_model|save_model|_save_checkpoint|save_checkpoint|save_pretrained|_save_consolidated|_full_post_state_dict_hook"
        rb"|_full_pre_state_dict_hook|save_fsdp_model|_gather_state_dict|gather_full_state_dict|get_full_state_dict)\n"
    ),
}
_BAR = re.compile(
    rb"^[^\n|]{0,120}\bLoading (?:\w{1,20} ){0,2}(?:checkpoint shards|weights)\b[^\n|%]{0,60}?(\d{1,3})% ?(?:Completed )?\|",
    re.MULTILINE,
)
"""The bar of what loads the files of a model."""
_INDENTED = re.compile(rb"(?:\(\w{1,60} pid=[^()\n]{1,80}\) ?|\[(?:rank)?\d{1,5}\]:? ?|\d{1,5}: ?)?[ \t]{2}")
"""A line of a traceback's frames: what stands below another one is not the exception of that traceback."""
_BETWEEN = 1 << 12
"""Bytes behind a bar in which what stopped it is said."""


def phase_of(text: bytes, position: int) -> str | None:
    """The part of its work in which a program was when it wrote what stands at `position`; None where it does not show.

    >>> log = b'Traceback (most recent call last):\\n  File "a.py", line 5, in from_pretrained\\n    f()\\nRuntimeError: x'
    >>> phase_of(log, len(log) - 3), phase_of(log.replace(b"from_pretrained", b"main"), len(log) - 3)
    ('loading', None)
    """
    line = text.rfind(b"\n", 0, position) + 1
    is_raised = _INDENTED.match(text, text.rfind(b"\n", 0, max(line - 1, 0)) + 1, line) is not None
    heading = text.rfind(TRACEBACK, max(0, position - LONGEST), position) if is_raised else -1
    frames = text[heading:position] if heading >= 0 else b""
    last: dict[str, int] = {}
    for one, words in _WORDS.items():
        for found in words.finditer(frames):
            last[one] = found.start()
    innermost = max(last, key=lambda name: last[name], default=None)
    phase = innermost or (LOADING if _is_below_bar(text, position) else None)
    return None if phase == LOADING and _has_trained(text, position) else phase


def _is_below_bar(text: bytes, position: int) -> bool:
    """Whether the last thing before is a bar of loading that had not come to its end."""
    bars = list(_BAR.finditer(text, max(0, position - _BETWEEN), position))
    return bool(bars) and int(bars[-1][1]) < 100


def _has_trained(text: bytes, position: int) -> bool:
    """Whether steps stand before it: then more lies on the GPU than what is brought there."""
    before = text[max(0, position - LONGEST) : position]
    steps = (before.rfind(b"\n", 0, step) + 1 for step in life.steps(before))
    return any(_BAR.match(before, line) is None for line in steps)  # a bar of loading has a speed, too
