"""Memory that ran out on what is no GPU of CUDA or ROCm, or was asked for past torch's allocator: words and remedies of their own."""

from __future__ import annotations

from hpc_llm.causes.cause import sign
from hpc_llm.causes.impossible_sizes import is_possible
from hpc_llm.text.out_of_memory import SIZE

_SLEEPS = (
    "the engine asked the driver for it, past torch's allocator, and the GPU was full: a smaller share for the engine leaves room for others: "
    "gpu_memory_utilization of vLLM, --mem-fraction-static of SGLang\n"
    "where another program shares the GPU with it, that one must give its memory back before the engine wakes up: parameters and optimizer to the "
    "host, then torch.cuda.empty_cache()\n"
    "see `nvidia-smi` or `rocm-smi` on the node for what an engine that ended has not given back yet"
)
_OF_MAC = (
    "a Mac's memory is the system's, too: end what else holds it\n"
    "smaller batches, shorter sequences, a smaller or a quantised model\n"
    "export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts torch's limit where little is missing; the whole system may then stall"
)
_OF_XLA = (
    "a smaller batch per device, or shorter sequences\n"
    "bf16 instead of fp32, and activations that are computed anew (jax.checkpoint, gradient checkpointing of torch_xla) where it trains\n"
    "share parameters and states among the devices: a mesh with an axis for them in JAX, FSDP of torch_xla; or take more devices\n"
    "where XLA runs on a GPU: export XLA_PYTHON_CLIENT_MEM_FRACTION=.95 gives it more than three quarters of it"
)
_OF_LLAMA_CPP = (
    "fewer layers on the GPU (-ngl), the rest on the host\n"
    "a shorter context (-c), or a smaller cache (--cache-type-k q8_0)\n"
    "a file of the model that is quantised to fewer bits"
)
_SOME_RESOURCE = (
    "most often the device's memory was full: `xpu-smi` on the node shows who holds it\n"
    "smaller batches or shorter sequences, to see whether it is that"
)

SIGNS = (
    sign(
        ("cumem_allocator", "torch_memory_saver"),
        r"(?:CUDA|HIP) Error: out of memory at [^\n]{0,200}cumem_allocator|\[torch_memory_saver\.cpp\] CU(?:DA|result) ?error: 2 \(out of memory\)",
        remedy=_SLEEPS,
    ),
    sign(
        ("MPS backend out of memory", "IOGPUCommandBufferCallbackErrorOutOfMemory"),
        rf"MPS backend out of memory(?: \([^)\n]{{0,200}}\)\. Tried to allocate (?P<asked>{SIZE}))?|kIOGPUCommandBufferCallbackErrorOutOfMemory",
        where=is_possible,
        remedy=_OF_MAC,
    ),
    sign(
        ("RESOURCE_EXHAUSTED: ", "ttempting to reserve "),
        r"RESOURCE_EXHAUSTED: Out of memory|RESOURCE_EXHAUSTED: [^\n]{0,120}\bRan out of memory in memory space \w{1,10}\b"
        r"|(?:RESOURCE_EXHAUSTED: [^\n]{0,160}\bAttempting to (?:allocate|reserve)|^Attempting to reserve) (?P<asked>[\d.]{1,12}[KMGT]i?B?)\b[^\n]{0,60}That was not possible",
        confidence=0.9,
        remedy=_OF_XLA,
    ),
    sign("OUT_OF_DEVICE_MEMORY", r"\b(?:UR_RESULT|PI|ZE_RESULT)_ERROR_OUT_OF_DEVICE_MEMORY\b", confidence=0.9),
    sign(
        "ERROR_OUT_OF_RESOURCES",
        r"\bNative API returns: -?\d{1,4} \((?:UR_RESULT|PI)_ERROR_OUT_OF_RESOURCES\)",
        confidence=0.6,
        precedence=46,
        remedy=_SOME_RESOURCE,
    ),
    sign("EL0004", r"\bEL0004: [^\n]{0,60}Failed to allocate memory", confidence=0.9),
    sign("PT_DEVMEM", r"MODULE:PT_DEVMEM Allocation failed for size::\d{1,18}", confidence=0.9),
    sign(
        "Malloc failed: out of memory",
        r"\bggml_\w{1,60}: [^\n]{0,120}(?:cuda|hip)Malloc failed: out of memory",
        confidence=0.9,
        remedy=_OF_LLAMA_CPP,
    ),
)
