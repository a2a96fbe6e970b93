#!/bin/bash
#SBATCH --job-name=llama2-7b-z3
#SBATCH --account=ACD110018
#SBATCH --partition=gp2d
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:8
#SBATCH --time=00:30:00
#SBATCH --output=/work/someone/logs/RUN-ID/log.out
#SBATCH --error=/work/someone/logs/RUN-ID/log.err
#SBATCH --open-mode=append
#SBATCH --export=NONE
# hpc-llm VERSION: pretrain of llama2-7b with z3 on taiwania2
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
eval "$functions" && begin_run 1800

# modules
need_modules /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh
module purge
load_module miniconda3/conda24.5.0_py3.9
load_module cmake
load_module nvhpc-24.11_hpcx-2.20_cuda-12.6

# environment
activate_conda /work/"${USER}"/deepspeed-pretrain
export TORCH_EXTENSIONS_DIR="${HOME}"/.cache/hpc-llm/taiwania2/torch_extensions
export OMP_NUM_THREADS=4
export PYTORCH_ALLOC_CONF=max_split_size_mb:128,garbage_collection_threshold:0.7,expandable_segments:True
export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,garbage_collection_threshold:0.7,expandable_segments:True
need_packages torch transformers deepspeed

# launch: 8 ranks, 8 per node
ranks_meet_at 127.0.0.1
set_ranks mpirun hpc_llm.worker.pretrain_llm --run-dir "$run_dir"
launch mpirun -np 8 --bind-to none "${rank[@]}"
