"""What nvidia-smi and rocm-smi say of a machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rendering import planned

from hpc_llm.site.hardware import Hardware, detect, parse_nvidia_smi, parse_rocm_smi

MI210 = """\
device,VRAM Total Memory (B),VRAM Total Used Memory (B),Card Series,Card Model,Card Vendor,Card SKU,Subsystem ID,Device Rev,Node ID,GUID,GFX Version
card0,68702699520,10854400,AMD Instinct MI210,0x740f,Advanced Micro Devices Inc. [AMD/ATI],D67301,0x0c34,0x02,1,63058,gfx90a
card1,68702699520,10854400,AMD Instinct MI210,0x740f,Advanced Micro Devices Inc. [AMD/ATI],D67301,0x0c34,0x02,2,28851,gfx90a
"""
ROCM_5 = """\
device,VRAM Total Memory (B),VRAM Total Used Memory (B),Card series,Card model,Card vendor,Card SKU
card0,68702699520,10854400,"Instinct MI210, OAM",0x0c34,"Advanced Micro Devices, Inc. [AMD/ATI]",D67301

"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NVIDIA H100 80GB HBM3, 81559, 9.0\n", Hardware("NVIDIA H100 80GB HBM3", "sm_90", 79.6, 1, "nvidia", 16)),
        ("Tesla V100-SXM2-32GB, 32768, 7.0\n" * 8, Hardware("Tesla V100-SXM2-32GB", "sm_70", 32.0, 8, "nvidia", 16)),
        ("NVIDIA B200, 183359, 10.0\r\n", Hardware("NVIDIA B200", "sm_100", 179.1, 1, "nvidia", 16)),
        ("NVIDIA GB10, [N/A], 12.1\n", Hardware("NVIDIA GB10", "sm_121", None, 1, "nvidia", 16)),
        (
            "Tesla P100-PCIE-16GB, 16280, [Not Supported]\n",
            Hardware("Tesla P100-PCIE-16GB", None, 15.9, 1, "nvidia", 16),
        ),
        ("Tesla V100-SXM2-32GB, 32510\n", Hardware("Tesla V100-SXM2-32GB", None, 31.7, 1, "nvidia", 16)),
        ("No devices were found\n", None),
        ("", None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", None),
    ],
)
def test_nvidia(text: str, found: Hardware | None) -> None:
    assert parse_nvidia_smi(text, 16) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (MI210, Hardware("AMD Instinct MI210", "gfx90a", 64.0, 2, "amd", 64)),
        (
            "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n\n" + MI210,
            Hardware("AMD Instinct MI210", "gfx90a", 64.0, 2, "amd", 64),
        ),
        (ROCM_5, Hardware("Instinct MI210, OAM", None, 64.0, 1, "amd", 64)),
        (
            MI210.replace("68702699520", "N/A").replace("gfx90a", "N/A"),
            Hardware("AMD Instinct MI210", None, None, 2, "amd", 64),
        ),
        (MI210.splitlines()[0] + "\n", None),
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)\n", None),
        ("", None),
    ],
)
def test_rocm(text: str, found: Hardware | None) -> None:
    assert parse_rocm_smi(text, 64) == found


def tool(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!{sys.executable} -S\nimport sys\n{body}\n")
    (folder / name).chmod(0o755)


def test_the_machine_is_asked_through_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert detect().vendor == "none" and detect().gpus == 0 and detect().cpus >= 1
    tool(tmp_path / "bin", "rocm-smi", f"print({MI210!r})")
    assert (detect().vendor, detect().gpus, detect().gpu_model) == ("amd", 2, "AMD Instinct MI210")
    tool(tmp_path / "bin", "nvidia-smi", "print('NVIDIA A40, 46068, 8.6')")
    assert (detect().vendor, detect().arch, detect().memory_gib) == ("nvidia", "sm_86", 45.0)


def test_an_old_driver_that_does_not_know_the_capability_still_shows_its_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
if "compute_cap" in sys.argv[1]:
    print('Field "compute_cap" is not a valid field to query.')
    sys.exit(2)
print("Tesla V100-SXM2-32GB, 32510")
"""
    tool(tmp_path / "bin", "nvidia-smi", body)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert detect() == Hardware("Tesla V100-SXM2-32GB", None, 31.7, 1, "nvidia", detect().cpus)


@pytest.mark.parametrize("body", ["sys.exit(9)", "print('No devices were found'); sys.exit(6)", "print('garbage')"])
def test_a_tool_that_fails_means_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    tool(tmp_path / "bin", "nvidia-smi", body)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert detect().vendor == "none"


def test_what_is_found_is_planned_for() -> None:
    for text, precision in (("Tesla V100-SXM2-32GB, 32768, 7.0", "fp16"), ("NVIDIA A40, 46068, 8.6", "bf16")):
        plan = planned("local", "z3", hardware=parse_nvidia_smi(text, 8)).plan
        assert (plan.model.precision, plan.gpu.model, plan.parallel.gpus_per_node) == (precision, text.split(",")[0], 1)
    amd = planned("local", "z3+f", hardware=parse_rocm_smi(MI210, 8), gpus_per_node=2).plan
    assert (amd.parallel.world_size, amd.model.precision) == (2, "bf16")
    # Nothing is known of its generation: planned as a modern one, and no notice that would be a guess.
    unknown = planned("local", "z3", hardware=parse_nvidia_smi("NVIDIA GB10, [N/A], [N/A]", 8))
    assert (unknown.plan.gpu.model, unknown.notices) == ("NVIDIA GB10", ())
