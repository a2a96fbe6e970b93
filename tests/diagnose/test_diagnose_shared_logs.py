"""Real logs of others, where the folder with them stands beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_llm.diagnosis import diagnose_files

LOGS = Path(__file__).parents[3] / "shared" / "logs"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason=f"{LOGS} is not here")

FAILED = {
    "cpu_runs/fail_bad_opt_torchrun.log": "config_error",
    "cpu_runs/fail_exception_rank1_dslauncher.log": "python_exception",
    "cpu_runs/fail_exception_rank1_torchrun.log": "python_exception",
    "cpu_runs/fail_gloo_timeout_torchrun.log": "collective_timeout",
    "cpu_runs/fail_hftrainer_nousecpu_rerun1.log": "gpu_missing",
    "cpu_runs/fail_sigkill_rank1_dslauncher.log": "host_oom",
    "cpu_runs/fp16_minscale_z2_deepspeed.log": "loss_scale_collapse",
    "cpu_runs/z0_fp16_deepspeed_1rank.log": "config_error",
    "cpu_runs/z2o_bf16_deepspeed_dslauncher_num_gpus2bind_cores_to_rank.log": "package_missing",
    "cpu_runs/z2o_hftrainer_1proc_nolauncher.log": "package_missing",
    "cpu_runs/z2o_hftrainer_nousecpu_torchrun2.log": "gpu_missing",
    "cpu_runs/z3_fp16_deepspeed_1rank.log": "config_error",
    "cpu_runs/z3_fp32_deepspeed_1rank_zinit.log": "python_exception",
    "cpu_runs/z3_hftrainer_torchrun2_noinit_FAIL.log": "config_error",
    "cpu_runs/z3o_bf16_deepspeed_1rank_zinit.log": "python_exception",
    "failures/alcf_lmod_unknown_module.log": "module_missing",
    "failures/bigscience_bus_error_dataloader.log": "bus_error",
    "failures/conda_init_error_taiwania2.log": "conda_not_initialised",
    "failures/eaddrinuse_runtimeerror.log": "port_in_use",
    "failures/eaddrinuse_torchrun_1.13.log": "port_in_use",
    "failures/hip_oom_model_to_gpu.log": "device_oom",
    "failures/hip_oom_therock.log": "device_oom",
    "failures/hip_oom_zimage.log": "device_oom",
    "failures/invalid_device_ordinal_torchrun.log": "gpu_missing",
    "failures/mpi_bus_error_ucx.log": "bus_error",
    "failures/slurm_node_failure_merced.log": "node_fail",
    "failures/slurm_oom_kill_batch.log": "host_oom",
    "failures/slurm_oom_kill_old_format.log": "host_oom",
    "failures/slurm_oom_kill_step_srun.log": "host_oom",
    "failures/slurm_preemption_plain.log": "preempted",
    "failures/stas_nccl_watchdog_timeout.log": "collective_timeout",
    "failures/tensorrtllm_docker_shm_bus_error.log": "bus_error",
    "failures/torchrun_oom_old_spelling_capacty.txt": "device_oom",
    "hf_trainer_notebook/sunminqiu_Mistral_cell7.log": "package_missing",
    "homework_deepspeed/train_QR_nv__11a8cc2.out": "cancelled",
    "homework_deepspeed/train__e640247.out": "cancelled",
    "homework_deepspeed/train__ef324fe.out": "driver_mismatch",
    "homework_deepspeed/train_zero_1_nv__acde43f.out": "driver_mismatch",
    "homework_deepspeed/train_zero_2_nv__a6f31f5.out": "device_oom",
    "homework_deepspeed/train_zero_3_nv__11a8cc2.out": "package_missing",
    "homework_deepspeed/zero_1_amd__b8bacae.log": "device_oom",
    "homework_deepspeed/zero_3_amd__693981f.log": "device_oom",
    "homework_deepspeed/zero_3_amd__b8bacae.log": "device_oom",
    "homework_deepspeed/zero_3_amd__bd759b1.log": "device_oom",
    "homework_deepspeed/zero_3_nv__a2f7919.out": "config_error",
    "megatron/bigscience_meg_gpt2_base_n4.out": "cancelled",
    "megatron/bigscience_meg_gpt2_base_n64_TIMELIMIT.out": "walltime",
    "megatron_deepspeed/bigscience_meg_ds_zero_n16_TIMELIMIT.out": "walltime",
    "nemo/mlperf_v5.0_dell_gb200_llama2_lora_TIMELIMIT.txt": "walltime",
    "sagemaker_hf_deepspeed/exp2-LORA_exp2_runs_fine_tune_t5-xl-2-nopeft__cell12.log": "device_oom",
    "sagemaker_hf_deepspeed/exp2-LORA_exp2_runs_fine_tune_t5-xl-4-nopeft__cell12.log": "device_oom",
    "sagemaker_hf_deepspeed/exp3-QLORA_exp3_runs_13-bill-8-plain__cell7.log": "device_oom",
    "sagemaker_hf_deepspeed/exp3-QLORA_exp3_runs_7-bill-4-plain__cell7.log": "device_oom",
}
"""Files that show a failure, and which; all the others show none."""


def test_what_failed_and_what_did_not() -> None:
    wrong = {}
    for file in sorted(path for path in LOGS.rglob("*") if path.is_file() and path.suffix != ".csv"):
        name = str(file.relative_to(LOGS))
        found = diagnose_files([file]).cause.id
        expected = {FAILED[name]} if name in FAILED else {"none", "unknown"}
        if found not in expected:
            wrong[name] = found
    assert not wrong


def test_homework_runs_that_reached_their_end_have_nothing_to_complain_of() -> None:
    ended = [f for f in sorted((LOGS / "homework_deepspeed").iterdir()) if b"Training done in" in f.read_bytes()]
    assert ended and {f.name: diagnose_files([f]).cause.id for f in ended} == {f.name: "none" for f in ended}
