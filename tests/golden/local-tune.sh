#!/bin/bash
# hpc-llm VERSION: tune of tiny with ddp on local
# weights: random; data: synthetic tokens, a Markov chain whose mean loss cannot fall below 1.2130 nats

# run: its job is written down first where that is its own, for sbatch's answer may be lost; then come the functions
# shellcheck disable=SC2154  # they make the arrays rank, task, agent and program
this_job=("${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-}}" "${SLURM_CLUSTER_NAME:-}" "${HOSTNAME:-}" "${SLURM_JOB_NAME:-}"
  "${SLURM_ARRAY_TASK_ID:-null}" "${SLURM_RESTART_COUNT:-0}")
run_dir=/work/someone/logs/RUN-ID
if [ "${HPC_LLM_RUN_DIR:-}" = "$run_dir" ] && [ -f "$run_dir/job.json" ] && [ -r "$run_dir/job.json" ] &&
  [[ $(<"$run_dir/job.json") != *"\"uuid\": \"${HPC_LLM_RUN_UUID:-}\""* ]]; then exit 76; fi  # made anew for another run
in_run() { cd -P "$run_dir" && [[ ! -L $run_dir && -O . && -f job.json ]]; }
note_job() { [[ ! -L started.jsonl && ( -f started.jsonl || ! -e started.jsonl ) ]] && LC_ALL=C && printf -v said \
    '"job_id": "%s", "cluster": "%s", "host": "%s", "job_name": "%s", "array_task": %s, "restart_count": %s, "time": %(%s)T' \
    "${this_job[@]//[^A-Za-z0-9._-]/?}" -1 && echo "{\"schema\": 1, ${said//\"\"/null}}" >> started.jsonl; }
(in_run && note_job) 2>/dev/null
support=/work/someone/logs/.code/0123456789ab-1000.sh; functions=$([ -f "$support" ] && head -c 99999 "$support")
[ "$(echo "$functions" | sha256sum)" = "0123456789ab0000000000000000000000000000000000000000000000000000  -" ] || { in_run &&
  set -C && echo '{"exit_code": 78}' > exit.json; echo "hpc-llm: the code in $support is not what was submitted" >&2; exit 78; }
eval "$functions" && begin_run 3600

# environment
use_python_of /opt/env/bin
export TORCH_EXTENSIONS_DIR="${HOME}"/.cache/hpc-llm/local/torch_extensions
export OMP_NUM_THREADS=16
need_packages torch transformers

# launch: 1 rank, 1 per node, anew for each try
start_try() {
  set_ranks python hpc_llm.worker.pretrain_llm --run-dir "$try_dir"
  launch_try "${rank[@]}"
}
launch_tries hpc_llm.worker.tune_llm start_try
