#!/bin/bash
# hpc-llm VERSION: pretrain of tiny with z3 on local
run_dir=/work/someone/logs/RUN-ID
code_dir=/work/someone/logs/.code/0123456789ab
time_limit=
started_at=$(date +%s)
stage=prelude
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
export PATH=/opt/env/bin:"$PATH"
python=$(command -v python) || die 74 "python is not on PATH"
export PYTHONUNBUFFERED=1
export TORCH_EXTENSIONS_DIR="${HOME}"/.cache/hpc-llm/local/torch_extensions
export OMP_NUM_THREADS=16
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

# launch: 1 rank, 1 per node
export HPC_LLM_LAUNCHER=python
echo "hpc-llm: $(hostname), $python, modules ${LOADEDMODULES:-none}"
stage=launch
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
