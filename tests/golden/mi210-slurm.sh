#!/bin/bash
#SBATCH --job-name=llama2-7b-z3
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
#SBATCH --output=/work/someone/logs/RUN-ID/log.out
#SBATCH --error=/work/someone/logs/RUN-ID/log.err
#SBATCH --open-mode=append
#SBATCH --export=NONE
# hpc-llm VERSION: pretrain of llama2-7b with z3 on mi210
# weights: random; data: synthetic tokens, a Markov chain whose mean loss cannot fall below 1.2130 nats

# run: its job is written down first where that is its own, for sbatch's answer may be lost; then come the functions
# shellcheck disable=SC2154  # they make the arrays rank, task, agent and program
this_job=("${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-}}" "${SLURM_CLUSTER_NAME:-}" "${HOSTNAME:-}" "${SLURM_JOB_NAME:-}"
  "${SLURM_ARRAY_TASK_ID:-null}" "${SLURM_RESTART_COUNT:-0}")
run_dir=/work/someone/logs/RUN-ID
in_run() { cd -P "$run_dir" && [[ ! -L $run_dir && -O . && -f job.json && $(<job.json) = *"\"uuid\": \"${this_job[3]##*-}-"* ]]; }
note_job() { [[ ! -L started.jsonl && ( -f started.jsonl || ! -e started.jsonl ) ]] && LC_ALL=C && printf -v said \
    '"job_id": "%s", "cluster": "%s", "host": "%s", "job_name": "%s", "array_task": %s, "restart_count": %s, "time": %(%s)T' \
    "${this_job[@]//[^A-Za-z0-9._-]/?}" -1 && echo "{\"schema\": 1, ${said//\"\"/null}}" >> started.jsonl; }
(in_run && note_job) 2>/dev/null
support=/work/someone/logs/.code/0123456789ab-1000.sh; functions=$([ -f "$support" ] && head -c 99999 "$support")
[ "$(echo "$functions" | sha256sum)" = "0123456789ab0000000000000000000000000000000000000000000000000000  -" ] || { in_run &&
  set -C && echo '{"exit_code": 78}' > exit.json; echo "hpc-llm: the code in $support is not what was submitted" >&2; exit 78; }
eval "$functions" && begin_run

# modules
need_modules /etc/profile.d/modules.sh
module purge
use_modules /home/sky/modulefiles
load_module rocm
load_module ucx
load_module ucc
load_module openmpi

# environment
activate_conda /home/sky/pretrain-deepspeed "${HOME}"/miniconda3/etc/profile.d/conda.sh
make_job_folders MIOPEN_USER_DB_PATH=miopen MIOPEN_CUSTOM_CACHE_DIR=miopen-cache
export TORCH_EXTENSIONS_DIR="${HOME}"/.cache/hpc-llm/mi210/torch_extensions
export PYTORCH_ALLOC_CONF=max_split_size_mb:128,garbage_collection_threshold:0.7
export PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:128,garbage_collection_threshold:0.7
need_packages torch transformers deepspeed

# launch: 2 ranks, 2 per node
ranks_meet_at 127.0.0.1
set_ranks mpirun hpc_llm.worker.pretrain_llm --run-dir "$run_dir"
launch mpirun -np 2 --bind-to none "${rank[@]}"
