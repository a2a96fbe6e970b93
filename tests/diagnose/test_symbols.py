"""A compiled library that lacks a symbol: of another version, or linked without a library that has it in every release."""

from __future__ import annotations

from typing import Any

import pytest

IN_DEEPSPEED = "/e/site-packages/deepspeed/ops/adam/cpu_adam_op.cpython-38-x86_64-linux-gnu.so"
BUILT_HERE = "/h/.cache/torch_extensions/py311_cu124/cpu_adam/cpu_adam.so"
LINES = (
    "ImportError: {}: undefined symbol: {}\n",
    "[rank1]: OSError: {}: undefined symbol: {}\n",
    "python: symbol lookup error: {}: undefined symbol: {}\n",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("library", [IN_DEEPSPEED, BUILT_HERE])
@pytest.mark.parametrize(
    ("symbol", "preloaded"),
    [
        ("curandCreateGenerator", "libcurand.so"),
        ("curandSetPseudoRandomGeneratorSeed", "libcurand.so"),
        ("cublasCreate_v2", "libcublas.so"),
        ("cufftExecC2C", "libcufft.so"),
        ("io_submit", "libaio.so.1"),
    ],
)
def test_a_function_as_old_as_its_library_was_not_linked(
    line: str, library: str, symbol: str, preloaded: str, diagnose: Any
) -> None:
    found = diagnose(line.format(library, symbol))
    assert (found.cause.id, found.retry) == ("package_missing", False)
    assert "no version is wrong" in found.meaning and f"LD_PRELOAD=/PATH/TO/{preloaded}" in found.remedy
    assert "install it again" not in found.remedy and "another version" not in found.remedy
    assert found.details["library"] == library


@pytest.mark.parametrize(
    "symbol",
    ["_ZN3c104cuda9SetDeviceEi", "cublasLtHSHMatmulAlgoInit, version libcublasLt.so.11", "cublasSgemm_v2, version libcublas.so.12",
     "ncclCommSplit", "curandom"],
)  # fmt: skip
@pytest.mark.parametrize("line", LINES)
def test_a_function_of_some_releases_alone_is_a_mismatch(line: str, symbol: str, diagnose: Any) -> None:
    assert diagnose(line.format(IN_DEEPSPEED, symbol)).cause.id == "driver_mismatch"


def test_a_torch_that_wants_an_older_mkl_is_told_so(diagnose: Any) -> None:
    found = diagnose(LINES[0].format("/e/site-packages/torch/lib/libtorch_cpu.so", "iJIT_NotifyEvent"))
    assert found.cause.id == "driver_mismatch" and "mkl<2024.1" in found.remedy.splitlines()[0]
