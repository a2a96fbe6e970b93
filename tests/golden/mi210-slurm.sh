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
run_dir=/work/someone/logs/RUN-ID
code_dir=/work/someone/logs/.code/0123456789ab
time_limit=
started_at=$(date +%s)
stage=prelude
reason=
signal=
child=
job_tmp=

# exit.json tells how the run ended where accounting cannot. The traps call these functions:
# shellcheck disable=SC2317,SC2329
json() {
  local text=$1
  [ -n "$text" ] || { printf null; return; }
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//[[:cntrl:]]/ }
  # Bytes that are no UTF-8 would make the whole file unreadable.
  if command -v iconv >/dev/null; then text=$(printf '%s' "$text" | iconv -c -f UTF-8 -t UTF-8 2>/dev/null); fi
  printf '"%s"' "$text"
}
# shellcheck disable=SC2317,SC2329
number() { printf '%s' "${1:-null}"; }
# shellcheck disable=SC2317,SC2329
finish() {
  local code=$?
  trap '' TERM INT  # Slurm may send several: one that comes while the record is written would lose it
  trap - EXIT
  {
    printf '{"schema": 1, "run_id": %s, "exit_code": %s, "signal": %s, "stage": %s, "reason": %s,' \
      "$(json "${run_dir##*/}")" "$code" "$(json "$signal")" "$(json "$stage")" "$(json "$reason")"
    printf ' "host": %s, "job_id": %s, "array_task": %s, "started_at": %s, "ended_at": %s,' \
      "$(json "$(hostname)")" "$(json "${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-}}")" "$(number "${SLURM_ARRAY_TASK_ID:-}")" \
      "$started_at" "$(date +%s)"
    printf ' "time_limit_s": %s, "restart_count": %s}\n' "$(number "$time_limit")" "${SLURM_RESTART_COUNT:-0}"
  } > "$run_dir/.exit.json.$$" && mv -f "$run_dir/.exit.json.$$" "$run_dir/exit.json"
  [ -z "$job_tmp" ] || rm -rf "$job_tmp"
  exit "$code"
}
die() {
  reason=${2//[[:cntrl:]]/ }
  printf 'hpc-llm: %s (on %s)\n' "$reason" "$(hostname)" >&2
  exit "$1"
}
# shellcheck disable=SC2317,SC2329
on_signal() {
  signal=$1
  # TERM in any case: what bash starts in the background ignores INT.
  if [ -n "$child" ]; then kill -s TERM "$child" 2>/dev/null; else exit "$2"; fi
}
[ -d "$run_dir" ] || { printf 'hpc-llm: run folder %s is not visible on %s\n' "${run_dir//[[:cntrl:]]/ }" "$(hostname)" >&2; exit 76; }
trap finish EXIT
trap 'on_signal TERM 143' TERM
trap 'on_signal INT 130' INT
rm -f "$run_dir/exit.json"
cd "$run_dir" || die 76 "cannot enter run folder $run_dir"

# prelude: modules, Python environment, variables
export TMPDIR="${TMPDIR:-/tmp}" USER="${USER:-$(id -un)}"
unset SLURM_EXPORT_ENV  # left by --export=NONE, srun would start its tasks with an empty environment
if ! type module >/dev/null 2>&1; then
  module_inits=(/etc/profile.d/modules.sh)
  for init in "${module_inits[@]}"; do
    # shellcheck disable=SC1090
    if [ -r "$init" ]; then . "$init"; break; fi
  done
fi
type module >/dev/null 2>&1 || die 71 'the module system is missing: none of /etc/profile.d/modules.sh defines module'
load_module() {
  local before=${LOADEDMODULES:-}
  # Old Tcl modules return 0 whatever happens, so see whether anything changed.
  module load "$1" || die 72 "module $1 failed to load"
  case ":${LOADEDMODULES:-}" in *":$1"|*":$1"[:/]*) return ;; esac
  [ "${LOADEDMODULES:-}" != "$before" ] || die 72 "module $1 failed to load"
}
module purge
[ -d /home/sky/modulefiles ] || die 72 'module folder /home/sky/modulefiles does not exist'
module use /home/sky/modulefiles
load_module rocm
load_module ucx
load_module ucc
load_module openmpi
env_dir=/home/sky/pretrain-deepspeed
conda_hook="${HOME}"/miniconda3/etc/profile.d/conda.sh
[ -r "$conda_hook" ] || die 73 "conda's shell hook $conda_hook cannot be read"
# shellcheck disable=SC1090,SC1091
. "$conda_hook"
conda activate "$env_dir" || die 74 "conda environment $env_dir did not activate"
[ "${CONDA_PREFIX:-}" -ef "$env_dir" ] || die 74 "conda environment $env_dir is not active, CONDA_PREFIX is ${CONDA_PREFIX:-unset}"
python=$(command -v python) || die 74 "python is not on PATH"
job_tmp=$TMPDIR/hpc-llm-$USER-${SLURM_JOB_ID:-$$}
export MIOPEN_USER_DB_PATH="$job_tmp"/miopen
export MIOPEN_CUSTOM_CACHE_DIR="$job_tmp"/miopen-cache
mkdir -p "$MIOPEN_USER_DB_PATH" "$MIOPEN_CUSTOM_CACHE_DIR"
export PYTHONUNBUFFERED=1
export TORCH_EXTENSIONS_DIR="${HOME}"/.cache/hpc-llm/mi210/torch_extensions
export PYTORCH_ALLOC_CONF=max_split_size_mb:128,garbage_collection_threshold:0.7
export PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:128,garbage_collection_threshold:0.7
export PYTHONPATH="$code_dir${PYTHONPATH:+:$PYTHONPATH}"
# The environment may be somebody else's: say at once what it lacks.
why=$("$python" - 2>&1 <<'PYTHON'
import importlib.util, sys
if sys.version_info < (3, 10):
    sys.exit("python %d.%d is too old, 3.10 is needed" % sys.version_info[:2])
missing = [name for name in ("torch", "transformers", "deepspeed") if importlib.util.find_spec(name) is None]
if missing:
    sys.exit("the Python environment lacks " + ", ".join(missing))
PYTHON
) || { why=${why##*$'\n'}; die 75 "${why:-python does not start}: $python"; }

# launch: 2 ranks, 2 per node
export HPC_LLM_LAUNCHER=mpirun
export MASTER_ADDR=127.0.0.1
# A port that is free here and below the ephemeral range, another one for each job.
MASTER_PORT=$("$python" - "${SLURM_JOB_ID:-$$}" <<'PYTHON'
import socket, sys
start = int(sys.argv[1]) * 7 % 22000
for offset in range(1000):
    port = 10000 + (start + offset) % 22000
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            continue
    print(port)
    break
PYTHON
)
export MASTER_PORT
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"  # srun has not inherited it since Slurm 22.05
command -v mpirun >/dev/null || die 77 "mpirun is not on PATH"
echo "hpc-llm: $(hostname), $python, modules ${LOADEDMODULES:-none}"
stage=launch
mpirun -np 2 --bind-to none \
  "$python" -u -m hpc_llm.worker.pretrain_llm --run-dir "$run_dir" &
child=$!
wait "$child"
code=$?
# A signal ends `wait` early: go on until the launcher itself has ended.
while kill -0 "$child" 2>/dev/null; do
  wait "$child"
  code=$?
done
child=
stage='done'
exit "$code"
