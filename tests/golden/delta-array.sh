#!/bin/bash
#SBATCH --job-name=llama2-7b-sweep
#SBATCH --account=bbka-delta-gpu
#SBATCH --partition=gpuA100x4
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --mem=238418M
#SBATCH --time=00:30:00
#SBATCH --constraint=work
#SBATCH --array=0-3
#SBATCH --output=/work/someone/logs/.array-RUN-ID/%a/log.out
#SBATCH --error=/work/someone/logs/.array-RUN-ID/%a/log.err
#SBATCH --open-mode=append
#SBATCH --export=NONE
# hpc-llm VERSION: pretrain of llama2-7b with a sweep of methods on delta
# weights: random; data: synthetic tokens, a Markov chain whose mean loss cannot fall below 1.2130 nats
# task 0: RUN-ID-z2o (z2o)
# task 1: RUN-ID-z3 (z3)
# task 2: RUN-ID-z3o (z3o)
# task 3: RUN-ID-q (q)

# run: its job is written down first where that is its own, for sbatch's answer may be lost; then come the functions
# shellcheck disable=SC2154  # they make the arrays rank, task, agent and program
this_job=("${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-}}" "${SLURM_CLUSTER_NAME:-}" "${HOSTNAME:-}" "${SLURM_JOB_NAME:-}"
  "${SLURM_ARRAY_TASK_ID:-null}" "${SLURM_RESTART_COUNT:-0}")
run_dir=/work/someone/logs/.array-RUN-ID/"${this_job[4]}"
in_run() { cd -P "$run_dir" && [[ .. -ef ${run_dir%/*}/.. && ! -L ${run_dir%/*} && -O ${run_dir%/*} ]] &&
  [[ -O . && -f job.json && $(<job.json) = *"\"uuid\": \"${this_job[3]##*-}-"* ]]; }
note_job() { [[ ! -L started.jsonl && ( -f started.jsonl || ! -e started.jsonl ) ]] && LC_ALL=C && printf -v said \
    '"job_id": "%s", "cluster": "%s", "host": "%s", "job_name": "%s", "array_task": %s, "restart_count": %s, "time": %(%s)T' \
    "${this_job[@]//[^A-Za-z0-9._-]/?}" -1 && echo "{\"schema\": 1, ${said//\"\"/null}}" >> started.jsonl; }
(in_run && note_job) 2>/dev/null
support=/work/someone/logs/.code/0123456789ab-1000.sh; functions=$([ -f "$support" ] && head -c 99999 "$support")
[ "$(echo "$functions" | sha256sum)" = "0123456789ab0000000000000000000000000000000000000000000000000000  -" ] || { in_run &&
  set -C && echo '{"exit_code": 78}' > exit.json; echo "hpc-llm: the code in $support is not what was submitted" >&2; exit 78; }
eval "$functions" && begin_run 1800

# modules
need_modules /etc/profile.d/lmod.sh /usr/share/lmod/lmod/init/bash
module reset
load_module pytorch-conda/2.8

# environment
use_python
export TORCH_EXTENSIONS_DIR="${HOME}"/.cache/hpc-llm/delta/torch_extensions
export OMP_NUM_THREADS=16
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
need_packages torch transformers
case "$SLURM_ARRAY_TASK_ID" in 3) need_packages bitsandbytes ;; esac

# launch: 4 ranks, 4 per node
ranks_meet_at 127.0.0.1
set_ranks srun hpc_llm.worker.pretrain_llm --run-dir "$run_dir"
launch srun --nodes=1 --ntasks=4 --ntasks-per-node=4 --kill-on-bad-exit=1 --export=ALL --mpi=none --gpu-bind=none "${task[@]}"
