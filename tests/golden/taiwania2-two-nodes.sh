#!/bin/bash
#SBATCH --job-name=llama2-7b-z3
#SBATCH --account=ACD110018
#SBATCH --partition=gp2d
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gres=gpu:8
#SBATCH --time=00:30:00
#SBATCH --output=/work/someone/logs/RUN-ID/log.out
#SBATCH --error=/work/someone/logs/RUN-ID/log.err
#SBATCH --open-mode=append
#SBATCH --export=NONE
# hpc-llm VERSION: pretrain of llama2-7b with z3 on taiwania2
# weights: random
# data: synthetic tokens, a Markov chain whose mean loss cannot fall below 1.2130 nats
# First of all which job this is: should the answer of sbatch be lost, this line still tells. It runs no program, and is
# silent where the folder is not visible, for the check below says so. Nothing is written through what others put there.
(
  LC_ALL=C
  job=${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-}} cluster=${SLURM_CLUSTER_NAME:-} host=${HOSTNAME:-} name=${SLURM_JOB_NAME:-}
  job=${job:+\"${job//[^A-Za-z0-9._-]/?}\"}
  cluster=${cluster:+\"${cluster//[^A-Za-z0-9._-]/?}\"}
  host=${host:+\"${host//[^A-Za-z0-9._-]/?}\"}
  name=${name:+\"${name//[^A-Za-z0-9._-]/?}\"}
  started=/work/someone/logs/RUN-ID/started.jsonl
  [ ! -L "$started" ] && { [ ! -e "$started" ] || [ -f "$started" ]; } || exit
  printf '{"schema": 1, "job_id": %s, "array_task": %s, "cluster": %s, "host": %s, "job_name": %s, "restart_count": %s, "time": %(%s)T}\n' \
    "${job:-null}" "${SLURM_ARRAY_TASK_ID:-null}" "${cluster:-null}" "${host:-null}" "${name:-null}" "${SLURM_RESTART_COUNT:-0}" -1 \
    >> "$started"
) 2>/dev/null
trap '' USR1 USR2  # nothing here acts on them, and what is started inherits that they end nothing
run_dir=/work/someone/logs/RUN-ID
code_archive=/work/someone/logs/.code/0123456789ab-1000.zip
code_digest=0123456789ab0000000000000000000000000000000000000000000000000000
time_limit=1800
started_at=$(date +%s)
stage=  # none yet: a signal waits until the earlier try is safe
reason=
signal=
child=

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
ignore_signals() { trap '' HUP INT QUIT ABRT PIPE ALRM TERM XCPU XFSZ VTALRM PROF IO PWR; }
# shellcheck disable=SC2317,SC2329
record_of_job() { [ ! -f "$run_dir/job.json" ] || grep -o '"uuid": "[^"]*"' "$run_dir/job.json"; }
# shellcheck disable=SC2317,SC2329
finish() {
  local code=$? record=$run_dir/.exit.json.$$.$RANDOM$RANDOM
  ignore_signals  # Slurm may send several: one that comes while the record is written would lose it
  trap - EXIT
  # Removed meanwhile, and made anew by another job: what is there is that one's.
  local now
  now=$(record_of_job)
  [ -z "$now" ] || [ -z "$job_record" ] || [ "$now" = "$job_record" ] || exit "$code"
  if [ "$code" = 0 ] && [ "$stage" != 'done' ]; then
    code=1
    reason=${reason:-"the job script was ended in the stage $stage by something that left no exit code"}
  fi
  set -C  # a link that somebody put there is not written through
  {
    printf '{"schema": 1, "run_id": %s, "exit_code": %s, "signal": %s, "stage": %s, "reason": %s,' \
      "$(json "${run_dir##*/}")" "$code" "$(json "$signal")" "$(json "$stage")" "$(json "$reason")"
    printf ' "host": %s, "job_id": %s, "array_task": %s, "started_at": %s, "ended_at": %s,' \
      "$(json "$(hostname)")" "$(json "${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-}}")" "$(number "${SLURM_ARRAY_TASK_ID:-}")" \
      "$started_at" "$(date +%s)"
    printf ' "time_limit_s": %s, "restart_count": %s}\n' "$(number "$time_limit")" "${SLURM_RESTART_COUNT:-0}"
  } > "$record" && mv -fT "$record" "$run_dir/exit.json"
  exit "$code"
}
die() {
  ignore_signals
  reason=${2//[[:cntrl:]]/ }
  printf 'hpc-llm: %s (on %s)\n' "$reason" "$(hostname)" >&2
  exit "$1"
}
# shellcheck disable=SC2317,SC2329
end_by_signal() {
  ignore_signals
  exit "$((128 + $(kill -l "$signal")))"
}
# shellcheck disable=SC2317,SC2329
on_signal() {
  signal=${signal:-$1}  # the first one is the cause
  # TERM in any case: what bash starts in the background ignores INT.
  if [ -n "$child" ]; then
    kill -s TERM "$child" 2>/dev/null
  elif [ -n "$stage" ]; then
    end_by_signal
  fi
}
is_over() { [ -f "$run_dir/result.json" ] && grep -Eq '"outcome": *"(COMPLETED|INVALID)"' "$run_dir/result.json"; }
# Moves what an earlier try left to tries/<number> and prints the number of this try. A whole measurement stays.
keep_earlier_try() {
  local moving=$run_dir/tries/.moving number=1 path
  local left=("$run_dir/exit.json")
  umask go-w
  is_over || left+=("$run_dir"/result.json "$run_dir"/steps.jsonl "$run_dir"/failures "$run_dir"/telemetry*.jsonl)
  ignore_signals  # in a subshell: those that the whole group gets must not stop a program that moves
  while [ -e "$run_dir/tries/$number" ]; do number=$((number + 1)); done
  for path in "${left[@]}"; do
    [ -e "$path" ] || continue
    # The folder is there already where a try was killed in between: what is left belongs to the same one.
    if [ -e "$moving/${path##*/}" ]; then
      mv -T "$moving" "$run_dir/tries/$number" || return
      number=$((number + 1))
    fi
    mkdir -p "$moving" || return
    mv "$path" "$moving/" || return
  done
  if [ -d "$moving" ]; then
    mv -T "$moving" "$run_dir/tries/$number" || return
    number=$((number + 1))
  fi
  printf '%s' "$number"
}
[ -d "$run_dir" ] || { printf 'hpc-llm: run folder %s is not visible on %s\n' "${run_dir//[[:cntrl:]]/ }" "$(hostname)" >&2; exit 76; }
# Where others can rename what lies beside it, a folder of theirs may stand in its place. (A file made in it tells whether the
# file system knows of owners at all.)
if [ ! -O "$run_dir" ]; then
  probe=$run_dir/.owner.$$.$RANDOM$RANDOM
  if (set -C; : > "$probe") 2>/dev/null && [ -O "$probe" ]; then
    rm -f "$probe"
    printf 'hpc-llm: run folder %s belongs to another user (on %s)\n' "${run_dir//[[:cntrl:]]/ }" "$(hostname)" >&2
    exit 76
  fi
  rm -f "$probe"
fi
# The folder may have been removed and made anew for another job under the same name: that one's files are not to be mixed.
if [[ ${SLURM_JOB_NAME:-} =~ -([0-9a-f]{8})$ ]] && [ -f "$run_dir/job.json" ] && ! grep -q "\"uuid\": \"${BASH_REMATCH[1]}-" "$run_dir/job.json"; then
  printf 'hpc-llm: run folder %s belongs to another job by now (on %s)\n' "${run_dir//[[:cntrl:]]/ }" "$(hostname)" >&2
  exit 76
fi
trap 'on_signal HUP' HUP
trap 'on_signal INT' INT
trap 'on_signal QUIT' QUIT
trap 'on_signal ABRT' ABRT
trap 'on_signal PIPE' PIPE
trap 'on_signal ALRM' ALRM
trap 'on_signal TERM' TERM
trap 'on_signal XCPU' XCPU
trap 'on_signal XFSZ' XFSZ
trap 'on_signal VTALRM' VTALRM
trap 'on_signal PROF' PROF
trap 'on_signal IO' IO
trap 'on_signal PWR' PWR
try=$(keep_earlier_try) || {
  [ -z "$signal" ] || end_by_signal
  printf 'hpc-llm: what an earlier try left cannot be moved to %s/tries on %s\n' "${run_dir//[[:cntrl:]]/ }" "$(hostname)" >&2
  exit 1
}
job_record=$(record_of_job)
trap finish EXIT
stage=prelude
[ -z "$signal" ] || end_by_signal
# Cancelled while it was being submitted, when there was no job yet to end. One that is queued again was asked for.
if [ -e "$run_dir/cancelled.json" ] && [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then
  die 80 "it was cancelled before it began"
fi
if is_over; then
  stage='done'
  die 0 "the run had come to its end already, nothing was run again: result.json holds its measurement"
fi
cd "$run_dir" || die 76 "cannot enter run folder $run_dir"

# prelude: modules, Python environment, variables
export TMPDIR="${TMPDIR:-/tmp}" USER="${USER:-$(id -un)}"
unset SLURM_EXPORT_ENV  # left by --export=NONE, srun would start its tasks with an empty environment
if ! type module >/dev/null 2>&1; then
  module_inits=(/etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh)
  for init in "${module_inits[@]}"; do
    # shellcheck disable=SC1090
    if [ -r "$init" ]; then . "$init"; break; fi
  done
fi
type module >/dev/null 2>&1 || die 71 'the module system is missing: none of /etc/profile.d/lmod.sh, /etc/profile.d/z00_lmod.sh, /etc/profile.d/modules.sh defines module'
load_module() {
  local before=${LOADEDMODULES:-}
  # Old Tcl modules return 0 whatever happens, so see whether anything changed.
  module load "$1" || die 72 "module $1 failed to load"
  case ":${LOADEDMODULES:-}" in *":$1"|*":$1"[:/]*) return ;; esac
  [ "${LOADEDMODULES:-}" != "$before" ] || die 72 "module $1 failed to load"
}
module purge
load_module miniconda3/conda24.5.0_py3.9
load_module cmake
load_module nvhpc-24.11_hpcx-2.20_cuda-12.6
env_dir=/work/"${USER}"/deepspeed-pretrain
command -v conda >/dev/null || die 73 "conda is not on PATH"
conda_base=$(conda info --base) || die 73 "'conda info --base' failed"
conda_hook=$conda_base/etc/profile.d/conda.sh
[ -r "$conda_hook" ] || die 73 "conda's shell hook $conda_hook cannot be read"
# shellcheck disable=SC1090,SC1091
. "$conda_hook"
conda activate "$env_dir" || die 74 "conda environment $env_dir did not activate"
[ "${CONDA_PREFIX:-}" -ef "$env_dir" ] || die 74 "conda environment $env_dir is not active, CONDA_PREFIX is ${CONDA_PREFIX:-unset}"
python=$(command -v python) || die 74 "python is not on PATH"
export PYTHONUNBUFFERED=1
export TORCH_EXTENSIONS_DIR="${HOME}"/.cache/hpc-llm/taiwania2/torch_extensions
export OMP_NUM_THREADS=4
export PYTORCH_ALLOC_CONF=max_split_size_mb:128,garbage_collection_threshold:0.7,expandable_segments:True
export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,garbage_collection_threshold:0.7,expandable_segments:True
export NCCL_SOCKET_IFNAME=ib0
export GLOO_SOCKET_IFNAME=ib0
export PYTHONSAFEPATH=1  # a torch.py in the run folder is not torch (Python 3.11 and later heed it)
# An empty part of these is the working directory, and others may be able to write there.
without_empty_parts() {
  local name=$1 value=:${!1:-}:
  while [[ $value = *::* ]]; do value=${value//::/:}; done
  value=${value#:}
  if [ -n "$value" ]; then export "$name=${value%:}"; else unset "$name"; fi
}
without_empty_parts PATH
without_empty_parts LD_LIBRARY_PATH
without_empty_parts PYTHONPATH
# The environment may be somebody else's: say at once what it lacks.
why=$("$python" - 2>&1 <<'PYTHON'
import sys
sys.path[:] = [place for place in sys.path if place]
import importlib.util
if sys.version_info < (3, 10):
    sys.exit("python %d.%d is too old, 3.10 is needed" % sys.version_info[:2])
missing = [name for name in "torch transformers deepspeed".split() if importlib.util.find_spec(name) is None]
if missing:
    sys.exit("the Python environment lacks " + ", ".join(missing))
PYTHON
) || { why=${why##*$'\n'}; die 75 "${why:-python does not start}: $python"; }
# How each rank starts: it reads the archive once, checks what it has read, and runs that from memory, for others may be able
# to write where the archive lies.
# shellcheck disable=SC2016
start='import sys

if __name__ == "__main__":
    sys.path[:] = [place for place in sys.path if place]  # nothing is imported from the run folder

import hashlib
import importlib.abc
import importlib.util
import io
import os
import runpy
import stat
import types
import zipfile
from importlib.machinery import ModuleSpec
from typing import Any, Optional

CODE_CHANGED = 78
LARGEST = 1 << 26


def read_archive(path: str, digest: str) -> bytes:
    content = b""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                content = file.read(LARGEST)
    except OSError as error:
        print("hpc-llm: %s: %s" % (path, error.strerror), file=sys.stderr)
    if hashlib.sha256(content).hexdigest() != digest:
        print("hpc-llm: the code in %s is not what was submitted with this run" % path, file=sys.stderr)
        sys.exit(CODE_CHANGED)
    return content


class Carried(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports what the archive holds; everything else is left to the environment."""

    def __init__(self, place: str, content: bytes, program: str) -> None:
        self.place, self.program = place, program
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            self.files = {name: archive.read(name) for name in archive.namelist()}

    def file_of(self, name: str) -> str:
        module = (self.program if name == "__main__" else name).replace(".", "/")
        package = module + "/__init__.py"
        return package if package in self.files else module + ".py"

    def find_spec(self, name: str, path: Any = None, target: Optional[types.ModuleType] = None) -> Optional[ModuleSpec]:
        if self.file_of(name) not in self.files:
            return None
        spec = importlib.util.spec_from_loader(name, self, origin=self.place + "/" + self.file_of(name))
        if spec is not None:
            spec.has_location = True
        return spec

    def is_package(self, name: str) -> bool:
        return self.file_of(name).endswith("/__init__.py")

    def get_source(self, name: str) -> str:
        if self.file_of(name) not in self.files:
            raise ImportError(name)
        return self.files[self.file_of(name)].decode("utf-8")

    def get_code(self, name: str) -> Optional[types.CodeType]:
        return compile(self.get_source(name), self.place + "/" + self.file_of(name), "exec", dont_inherit=True)


def main() -> None:
    place, digest = sys.argv[1:3]
    content = read_archive(place, digest)
    sys.argv[:3] = []
    if sys.argv:
        sys.meta_path.insert(0, Carried(place, content, sys.argv[0]))
        runpy.run_module(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()'
why=$("$python" -c "$start" "$code_archive" "$code_digest" 2>&1) || { why=${why##*$'\n'}; die 78 "${why#hpc-llm: }"; }

# launch: 16 ranks, 8 per node
export HPC_LLM_LAUNCHER=torchrun
export HPC_LLM_TRY=$try
first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
getent hosts "$first_node" >/dev/null || first_node=$(hostname)
export MASTER_ADDR=$first_node
# A port that is free here and below the ephemeral range, another one for each job.
MASTER_PORT=$("$python" - "${SLURM_JOB_ID:-$$}" <<'PYTHON'
import sys
sys.path[:] = [place for place in sys.path if place]
import socket
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
program=("$python" -u -c "$start" "$code_archive" "$code_digest" hpc_llm.worker.pretrain_llm --run-dir "$run_dir")
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"  # srun has not inherited it since Slurm 22.05
command -v srun >/dev/null || die 77 "srun is not on PATH"
echo "hpc-llm: $(hostname), $python, modules ${LOADEDMODULES:-none}"
stage=launch
# Slurm starts each task with no signal ignored, whatever this script ignores.
# SLURM_PROCID is expanded on each node, not here.
# shellcheck disable=SC2016
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL --mpi=none \
  bash -c 'trap "" USR1 USR2; exec "$0" -u -c "$1" "$2" "$3" torch.distributed.run --nnodes=2 --nproc-per-node=8 --node-rank="$SLURM_PROCID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --no-python "${@:4}"' \
  "$python" "$start" "$code_archive" "$code_digest" "${program[@]}" &
child=$!
wait "$child"
code=$?
# A signal ends `wait` early: go on until the launcher itself has ended.
while kill -0 "$child" 2>/dev/null; do
  wait "$child"
  code=$?
done
child=
ignore_signals  # the end is settled
[ -z "$signal" ] || end_by_signal
stage='done'
exit "$code"
