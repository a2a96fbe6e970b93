# What the job script does besides its work: signals, records, earlier tries, checks with a code of their own, the launch.
# Bash 4.2, coreutils and grep. The script calls begin_run first and launch last; the checks stop it by `die`.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154,SC2317,SC2329  # the script sets this_job, run_dir and support, uses the arrays of set_ranks, and traps call

# --- what a template sets ---------------------------------------------------------------------------------------------

is_plain=

# plainly FUNCTION [ARGUMENT ...]: with bash as it starts. What a template of one's own sets, as `set -euo pipefail` and an IFS, is
# for its own lines, and is there again behind the function. What is traced stays so.
plainly() {
  local is_plain=1 plain_code plain_set=() plain_shopt=() IFS=$' \t\n'
  take_options_off
  "$@"
  plain_code=$?
  [ ${#plain_shopt[@]} = 0 ] || shopt -s "${plain_shopt[@]}"
  [ ${#plain_set[@]} = 0 ] || set "${plain_set[@]}"
  return "$plain_code"
}

# Those that were on are in plain_set and plain_shopt, which the caller has.
take_options_off() {
  local name
  for name in errexit errtrace functrace keyword monitor noclobber noglob nounset pipefail posix; do
    case :$SHELLOPTS: in *:"$name":*) set +o "$name"; plain_set+=(-o "$name") ;; esac
  done
  for name in failglob nocasematch nullglob xpg_echo; do
    case :$BASHOPTS: in *:"$name":*) shopt -u "$name"; plain_shopt+=("$name") ;; esac
  done
}

# --- the beginning and the end of a run -------------------------------------------------------------------------------

ending_signals=(HUP INT QUIT ABRT PIPE ALRM TERM XCPU XFSZ VTALRM PROF IO PWR)

# The script's array this_job: job id, cluster, host, job name, task of the array or null, how often it was queued again.

# begin_run [SECONDS]: from here on exit.json tells how the run ended, whatever ends it. SECONDS is the job's time limit.
begin_run() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local name asked_dir=$run_dir
  stage=  # none yet: a signal waits until the earlier try is safe
  reason='' signal='' child='' saves='' job_tmp='' limit=() wrapper=() profiler=()
  time_limit=${1:-}
  printf -v started_at '%(%s)T' -1
  oom_kills_before=$(count_oom_kills)
  for name in "${ending_signals[@]}"; do
    # shellcheck disable=SC2064  # the name as it is now
    trap "on_signal $name" "$name"
  done
  trap '' USR1 USR2  # nothing here acts on them but after let_ranks_save; what is started inherits that they end nothing
  trap - EXIT  # in a folder that is not the run's nothing is written
  unset SLURM_EXPORT_ENV  # left by --export=NONE, srun would start its tasks with an empty environment
  check_run_folder
  check_task
  # The script itself has done so, unless the file system knows of no owners, or the job's name does not tell its UUID.
  if type -t note_job >/dev/null && ! (run_dir=$asked_dir in_run) 2>/dev/null; then (cd "$run_dir" && note_job) 2>/dev/null; fi
  try=$(keep_earlier_try) || {
    [ -z "$signal" ] || end_by_signal
    say "what an earlier try left cannot be moved to $run_dir/tries on $(hostname)"
    exit 1
  }
  job_record=$(record_of_job)
  trap finish EXIT
  stage=prelude
  [ -z "$signal" ] || end_by_signal
  # Cancelled while it was being submitted, when there was no job yet to end. One that is queued again was asked for.
  if [ -e "$run_dir/cancelled.json" ] && [ "${this_job[5]:-0}" = 0 ]; then
    die "$stop_cancelled" "it was cancelled before it began"
  fi
  if is_over; then
    stage='done'
    die 0 "the run had come to its end already, nothing was run again: result.json holds its measurement"
  fi
  cd "$run_dir" || die "$stop_no_run_folder" "cannot enter run folder $run_dir"
  export TMPDIR="${TMPDIR:-/tmp}" USER="${USER:-$(id -un)}"
  export PYTHONUNBUFFERED=1
  export PYTHONSAFEPATH=1  # a torch.py in the run folder is not torch (Python 3.11 and later heed it)
}

# let_ranks_save [SIGNAL]: the ranks keep checkpoints, so an end that comes with a notice is theirs to carry out: launchers
# would kill them in the midst of it. SIGNAL is what --sbatch signal=B:... sends while there is still time.
let_ranks_save() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  saves=1
  rm -f "$run_dir/stop"
  [ $# != 0 ] || return 0
  ending_signals+=("$1")
  # shellcheck disable=SC2064
  trap "reason='the time limit was near, which SIG$1 told, as it was asked to'; on_signal $1" "$1"
}

say() { printf 'hpc-llm: %s\n' "${1//[[:cntrl:]]/ }" >&2; }

# die CODE REASON: ends the script with one line, which exit.json keeps.
die() {
  ignore_signals
  reason=${2//[[:cntrl:]]/ }
  say "$reason (on $(hostname))"
  exit "$1"
}

ignore_signals() { trap '' "${ending_signals[@]}"; }

on_signal() {
  signal=${signal:-$1}  # the first one is the cause
  # TERM in any case: what bash starts in the background ignores INT.
  if [ -n "$child" ] && [ -n "$saves" ]; then
    (set -C; echo "$signal" > "$run_dir/stop") 2>/dev/null
  elif [ -n "$child" ]; then
    kill -s TERM "$child" 2>/dev/null
  elif [ -n "$stage" ]; then
    end_by_signal
  fi
}

end_by_signal() {
  ignore_signals
  exit "$((128 + $(kill -l "$signal")))"
}

# Whose folder it is may have changed since it was submitted: nothing is written into that of another job or user. Where others
# can rename what lies beside it, a folder of theirs may stand in its place, or a link to one of this user's that is no run's.
check_run_folder() {
  local asked=$run_dir
  [ -d "$run_dir" ] || leave_alone "is not visible"
  [ ! -L "$run_dir" ] || follow_link
  is_ours "$run_dir" || leave_alone "belongs to another user"
  { [ -f "$run_dir/job.json" ] && [ -r "$run_dir/job.json" ]; } || leave_alone "is not that of this job: it holds no job.json that can be read"
  is_of_this_job "$asked" || leave_alone "belongs to another job by now"
}

# leave_alone WHY: without a record, for in a folder that is not the run's nothing is written.
leave_alone() {
  say "run folder $run_dir $1 on $(hostname)"
  exit "$stop_no_run_folder"
}

# Only the task of an array is led to its run, by this user's own link in the array's folder, to a run beside it.
follow_link() {
  local links=${run_dir%/*}
  { [[ ${links##*/} = .array-* ]] && [ ! -L "$links" ] && is_ours "$links" && [ "$run_dir/.." -ef "$links/.." ] &&
    [ "$(stat -c %u "$run_dir")" = "$(stat -c %u "$links")" ]; } ||
    leave_alone "is a link that this job does not follow: others may have made it, or it leads out of the folder of the runs"
  run_dir=$(readlink -f "$run_dir")
}

# A file that is made in a folder of others tells whether the file system knows of owners at all.
is_ours() {
  local probe=$1/.owner.$$.$RANDOM$RANDOM others=0
  [ ! -O "$1" ] || return 0
  if (set -C; : > "$probe") 2>/dev/null && [ -O "$probe" ]; then others=1; fi
  rm -f "$probe"
  return "$others"
}

# is_of_this_job ASKED: by the UUID that the queue of this machine or the job's name tells; without one by the run's name.
is_of_this_job() {
  if [ "${HPC_LLM_RUN_DIR:-}" = "$1" ] && [ -n "${HPC_LLM_RUN_UUID:-}" ]; then
    grep -qF "\"uuid\": \"$HPC_LLM_RUN_UUID\"" "$run_dir/job.json"
  elif [[ ${this_job[3]:-} =~ -([0-9a-f]{8})$ ]]; then
    grep -q "\"uuid\": \"${BASH_REMATCH[1]}-" "$run_dir/job.json"
  else
    grep -qF "\"run_id\": \"${run_dir##*/}\"" "$run_dir/job.json"
  fi
}

# Two tasks that are led to one run would write over each other.
check_task() {
  [ "${this_job[4]:-null}" != null ] || return 0
  grep -Eq '"array_task": *(null|[0-9]+)' "$run_dir/job.json" || return 0
  grep -Eq "\"array_task\": *${this_job[4]}([^0-9]|\$)" "$run_dir/job.json" && return
  say "run folder $run_dir is that of another task (on $(hostname))"
  exit "$stop_no_run_folder"
}

record_of_job() { [ ! -L "$run_dir" ] && [ -f "$run_dir/job.json" ] && grep -o '"uuid": "[^"]*"' "$run_dir/job.json"; }

is_over() { [ -f "$run_dir/result.json" ] && grep -Eq '"outcome": *"(COMPLETED|INVALID)"' "$run_dir/result.json"; }

# Moves what an earlier try left to tries/<number> and prints the number of this try. A whole measurement stays.
keep_earlier_try() {
  local moving=$run_dir/tries/.moving number=1 path pattern
  local left=("$run_dir/exit.json" "$run_dir"/.exit.json.*)
  umask go-w
  if ! is_over; then
    for pattern in "${try_files[@]}"; do
      # shellcheck disable=SC2206  # a pattern
      [ "$pattern" = exit.json ] || left+=("$run_dir"/$pattern)
    done
  fi
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

# Writes exit.json, which tells how the run ended where accounting cannot. A disk that is full may have room in a moment; what
# is begun and cannot be written stays, to tell that.
finish() {
  local code=$? now waited=0 is_plain=1 plain_set=() plain_shopt=() IFS=$' \t\n'
  take_options_off
  now=$(date +%s)
  ignore_signals  # Slurm may send several: one that comes while the record is written would lose it
  trap - EXIT
  # Removed meanwhile, and made anew by another job, or put there by somebody: what is there is not this run's.
  [ "$(record_of_job)" = "$job_record" ] || exit "$code"
  if [ "$code" = 0 ] && [ "$stage" != 'done' ]; then
    code=1
    reason=${reason:-"the job script was ended in the stage $stage by something that left no exit code"}
  fi
  if ! write_exit "$now"; then
    while [ $((waited += 1)) -le 20 ] && sleep 1 && [ "$(record_of_job)" = "$job_record" ]; do
      ! write_exit "$now" 2>/dev/null || break
    done
  fi
  [ -z "$job_tmp" ] || rm -rf "$job_tmp"
  exit "$code"
}

# How many processes the kernel of this node has killed for lack of memory since it started; nothing where it does not count.
count_oom_kills() {
  local name count
  while read -r name count; do
    [ "$name" != oom_kill ] || { printf '%s' "$count"; return; }
  done < /proc/vmstat
} 2>/dev/null

# oom_kills_since COUNT: how many more there are now, null where one of both is not known.
oom_kills_since() {
  local count
  count=$(count_oom_kills)
  if [ -n "$1" ] && [ -n "$count" ]; then printf '%s' "$((count - $1))"; else printf null; fi
}

# write_exit TIME: what finish knows, whole or not at all.
write_exit() {
  local record=$run_dir/.exit.json.$$.$RANDOM$RANDOM oom_kills
  oom_kills=$(oom_kills_since "$oom_kills_before")
  rm -f "$run_dir"/.exit.json.*
  set -C  # a link that somebody put there is not written through
  {
    printf '{"schema": 1, "run_id": %s, "exit_code": %s, "signal": %s, "stage": %s, "reason": %s,' \
      "$(json "${run_dir##*/}")" "$code" "$(json "$signal")" "$(json "$stage")" "$(json "$reason")" &&
    printf ' "host": %s, "job_id": %s, "array_task": %s, "started_at": %s, "ended_at": %s,' \
      "$(json "$(hostname)")" "$(json "${this_job[0]:-}")" "${this_job[4]:-null}" \
      "$started_at" "$1" &&
    printf ' "time_limit_s": %s, "restart_count": %s, "oom_kills": %s}\n' "${time_limit:-null}" "${this_job[5]:-0}" "$oom_kills"
  } > "$record" && mv -fT "$record" "$run_dir/exit.json"
}

# A text as JSON, null where it is empty.
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

# --- modules ----------------------------------------------------------------------------------------------------------

# need_modules [FILE ...]: the first file that can be read defines `module`, unless it is defined already.
need_modules() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local init_file no_module="module is not defined and prelude.init names no file"
  if ! type module >/dev/null 2>&1; then
    for init_file; do
      if [ -r "$init_file" ]; then read_in "$init_file"; break; fi
    done
  fi
  [ $# = 0 ] || { no_module=$(printf ', %s' "$@"); no_module="none of ${no_module#, } defines module"; }
  type module >/dev/null 2>&1 || die "$stop_no_module_system" "the module system is missing: $no_module"
}

# Without the arguments of a function, which a file that is read in would take for its own.
read_in() {
  local read_in_file=$1
  shift $#
  # shellcheck disable=SC1090
  . "$read_in_file"
}

# in_paths NAME...: the variables in the paths of the profile; of a path that is not there those without a value are told.
path_variables=""
in_paths() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  path_variables=$*
}

without_value() {
  local name
  for name in $path_variables; do
    [ -n "${!name:-}" ] || printf ', and the variable %s in the paths of the profile is not set' "$name"
  done
}

use_modules() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  [ -d "$1" ] || die "$stop_module_failed" "module folder $1 does not exist$(without_value)"
  module use "$1"
}

load_module() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local loaded_before=${LOADEDMODULES:-}
  # Old Tcl modules return 0 whatever happens, so see whether anything changed.
  module load "$1" || die "$stop_module_failed" "module $1 failed to load"
  case ":${LOADEDMODULES:-}" in *":$1" | *":$1"[:/]*) return ;; esac
  [ "${LOADEDMODULES:-}" != "$loaded_before" ] || die "$stop_module_failed" "module $1 failed to load"
}

# --- the Python environment -------------------------------------------------------------------------------------------

# activate_conda FOLDER [HOOK]: HOOK is conda's etc/profile.d/conda.sh; without it conda is asked.
activate_conda() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local conda_hook=${2:-}
  if [ -z "$conda_hook" ]; then
    command -v conda >/dev/null || die "$stop_no_conda" "conda is not on PATH"
    conda_hook=$(conda info --base)/etc/profile.d/conda.sh || die "$stop_no_conda" "'conda info --base' failed"
  fi
  [ -r "$conda_hook" ] || die "$stop_no_conda" "conda's shell hook $conda_hook cannot be read$(without_value)"
  read_in "$conda_hook"
  conda activate "$1" || die "$stop_env_not_active" "conda environment $1 did not activate$(without_value)"
  [ "${CONDA_PREFIX:-}" -ef "$1" ] ||
    die "$stop_env_not_active" "conda environment $1 is not active, CONDA_PREFIX is ${CONDA_PREFIX:-unset}"
  use_python
}

activate_venv() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  [ -r "$1/bin/activate" ] || die "$stop_env_not_active" "virtual environment $1 does not exist$(without_value)"
  read_in "$1/bin/activate"
  [ "${VIRTUAL_ENV:-}" -ef "$1" ] || die "$stop_env_not_active" "virtual environment $1 is not active"
  use_python
}

use_python() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  python=$(command -v python) || die "$stop_env_not_active" "python is not on PATH"
}

use_python_of() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  export PATH="$1:$PATH"
  use_python
}

# make_job_folders [--nodes=N] VARIABLE=NAME ...: folders of this job alone, under $TMPDIR on each node, removed at its end.
make_job_folders() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local pair folders=() each_node=()
  if [[ $1 = --nodes=* ]]; then
    each_node=(srun --ntasks-per-node=1 --ntasks="${1#*=}")
    shift
  fi
  job_tmp=$TMPDIR/hpc-llm-$USER-${SLURM_JOB_ID:-$$}-$RANDOM$RANDOM
  for pair; do
    export "${pair%%=*}=$job_tmp/${pair#*=}"
    folders+=("$job_tmp/${pair#*=}")
  done
  # What is compiled there is run: it is this user's folder and nobody else's, also where the nodes share it.
  # shellcheck disable=SC2016
  "${each_node[@]}" bash -c 'mkdir -p -- "${1%/*}"; umask 077
    mkdir -- "$1" 2>/dev/null || { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; } && mkdir -p -- "$@"' \
    bash "$job_tmp" "${folders[@]}" || die 1 "the job's own folder $job_tmp cannot be made"
}

# An empty part of these is the working directory, and others may be able to write there.
without_empty_parts() {
  local name value
  for name; do
    value=:${!name:-}:
    while [[ $value = *::* ]]; do value=${value//::/:}; done
    value=${value#:}
    if [ -n "$value" ]; then export "$name=${value%:}"; else unset "$name"; fi
  done
}

# need_packages PACKAGE ...: the environment may be somebody else's, so say at once what it lacks. The training program
# comes along, and is looked at as well.
need_packages() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local why
  without_empty_parts PATH LD_LIBRARY_PATH PYTHONPATH
  why=$("${wrapper[@]}" "$python" - "$@" 2>&1 <<'PYTHON'
import sys
sys.path[:] = [place for place in sys.path if place]
import importlib.util
if sys.version_info < (3, 10):
    sys.exit("python %d.%d is too old, 3.10 is needed" % sys.version_info[:2])
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
if missing:
    sys.exit("the Python environment lacks " + ", ".join(missing))
PYTHON
  ) || { why=${why##*$'\n'}; die "$stop_no_training_stack" "${why:-python does not start}: $python"; }
  why=$("${wrapper[@]}" "$python" -c "$start" "$code_archive" "$code_digest" 2>&1) ||
    { why=${why##*$'\n'}; die "$stop_code_changed" "${why#hpc-llm: }"; }
}

# read_variables FILE: what only its owner may read. Nothing of it is printed, not even by a mistake in it or where the script is
# traced, and no record keeps more than its name.
read_variables() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local settings traced=$-
  { set +xv; } 2>/dev/null
  { [ -f "$1" ] && [ -r "$1" ]; } || die "$stop_no_env_file" "the file $1 cannot be read"
  [ -O "$1" ] || die "$stop_no_env_file" "the file $1 belongs to somebody else"
  case $(stat -L -c %a "$1") in
    [4-7]00) ;;
    *) die "$stop_no_env_file" "others may open the file $1; chmod 600 it" ;;
  esac
  # It is read, not run: what a line would do in a shell has no effect here.
  settings=$("${wrapper[@]}" "$python" -I -S -c "$start" "$code_archive" "$code_digest" hpc_llm.text.env_file "$1" 2>/dev/null) ||
    die "$stop_no_env_file" "the file $1 cannot be used: ${settings:-"$python does not read it"}"
  eval "$settings"
  [[ $traced != *v* ]] || set -v
  [[ $traced != *x* ]] || set -x
}

# --- the launch -------------------------------------------------------------------------------------------------------

first_node() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local node
  node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)${1:-}
  getent hosts "$node" >/dev/null || node=$(hostname)
  printf '%s' "$node"
}

# ranks_meet_at HOST: there, at a port that is free here and below the ephemeral range, another one for each job.
ranks_meet_at() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  export MASTER_ADDR=$1
  MASTER_PORT=$("${wrapper[@]}" "$python" - "${SLURM_JOB_ID:-$$}" <<'PYTHON'
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
}

# profile_ranks PROGRAM [ARGUMENT ...]: set_ranks puts it before the command of each rank; @ in an argument is the rank's number,
# which only the rank itself knows. It stands within the wrapper: what the ranks run in must have it.
profile_ranks() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  # shellcheck disable=SC2016
  "${wrapper[@]}" bash -c 'command -v "$0" >/dev/null' "$1" ||
    die "$stop_no_profiler" "the profiler $1 is not on PATH: name the module that brings it in prelude.profilers of the cluster's profile"
  profiler=("$@")
}

# What stands before a rank that is profiled: names of its number, how many words its profiler has, these words, its command.
# shellcheck disable=SC2016
profile_rank='number=; for name in ${1//,/ }; do number=${!name:-}; [ -z "$number" ] || break; done
words=("${@:3:$2}"); exec "${words[@]//@/${number:-0}}" "${@:3+$2}"'

# tell_profiles: a run whose profiler left nothing is complete all the same, and says why it left nothing.
tell_profiles() {
  local why
  why="it says so in log.out or log.err"
  ! compgen -G "$run_dir/profile-rank-*" >/dev/null || return 0
  if grep -qsE 'ERR_NVGPUCTRPERM|lack of permissions \(capability SYS_PERFMON\)' "$run_dir/log.out" "$run_dir/log.err"; then
    why="the counters of this node's GPUs are locked for users, ask the site to open them (NVIDIA: RmProfilingAdminOnly=0)"
  fi
  reason="the profiler ${profiler[0]} left nothing: $why"
  say "$reason"
}

# set_ranks LAUNCHER MODULE [ARGUMENT ...]: makes the commands that launchers start, each an array. `start` reads the
# archive once, checks what it has read, and runs MODULE from memory, for others may be able to write where it lies.
set_ranks() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  export HPC_LLM_LAUNCHER=$1 HPC_LLM_TRY=$try
  # A rank that is told of no variables takes itself for the only one.
  [ -z "${rank_variables[$1]+known}" ] || export HPC_LLM_RANK_VARIABLES="${rank_variables[$1]}"
  local names=${rank_variables[$1]#rank=}
  shift
  program=("$python" -u -c "$start" "$code_archive" "$code_digest" "$@")
  [ ${#profiler[@]} = 0 ] || program=(bash -c "$profile_rank" bash "${names%% *}" "${#profiler[@]}" "${profiler[@]}" "${program[@]}")
  rank=("${wrapper[@]}" "${program[@]}")
  # An agent that is told to end lets its ranks save, for as long as the job lasts.
  agent=(env "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-600}" "${wrapper[@]}" "$python" -u -c "$start" "$code_archive" "$code_digest" torch.distributed.run)
  # Slurm starts each task with no signal ignored, whatever this script ignores, and only there is its number known.
  # shellcheck disable=SC2016
  task=(bash -c 'trap "" USR1 USR2; exec "$@"' bash "${rank[@]}")
  # shellcheck disable=SC2016
  agent_of_node=(bash -c 'trap "" USR1 USR2; exec "${@:1:$0}" --node-rank="$SLURM_PROCID" "${@:$0+1}"' "${#agent[@]}" "${agent[@]}")
}

need_program() { command -v "$1" >/dev/null || die "$stop_no_launcher" "$1 is not on PATH"; }

# launch_tries SEARCH START_TRY: a run that is many. Before each try the module SEARCH says which comes next; START_TRY, a function of
# the script, starts all ranks in its folder, try_dir. What was tried stays there, so a job that is queued again goes on.
launch_tries() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local answer what number sentence left=()
  echo "hpc-llm: $(hostname), $python, modules ${LOADEDMODULES:-none}"
  stage=launch
  while :; do
    [ -z "$time_limit" ] || left=(--seconds-left "$(($(date +%s) < started_at + time_limit ? started_at + time_limit - $(date +%s) : 0))")
    answer=$("${wrapper[@]}" "$python" -c "$start" "$code_archive" "$code_digest" "$1" --run-dir "$run_dir" "${left[@]}") ||
      die 1 "the search for the micro batch cannot go on"
    read -r what number try_limit sentence <<< "$answer"
    echo "hpc-llm: $sentence"
    [ "$what" = try ] || break
    try_dir=$run_dir/search/$number
    "$2"
  done
  ignore_signals  # the end is settled
  stage='done'
  exit "$number"
}

# launch_try COMMAND ...: one try, ended where it takes longer than try_limit. Nothing of it is left behind when the next one begins.
launch_try() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local code began reach=$try_limit left kills_before
  need_program "$1"
  export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
  printf -v began '%(%s)T' -1
  kills_before=$(count_oom_kills)
  left=$((${time_limit:-$((reach + began))} + started_at - began))
  [ -z "$time_limit" ] || [ "$left" -ge "$reach" ] || reach=$((left > 1 ? left : 1))
  HPC_LLM_TRY_DIR=$try_dir timeout --signal=TERM --kill-after=30 "$reach" "$@" >> "$try_dir/log.out" 2>> "$try_dir/log.err" &
  child=$!
  stage=  # a signal waits until the try has its record
  wait_for_child
  end_what_is_left
  await_reason
  note_try
  [ -z "$signal" ] || end_by_signal
}

# Slurm tells the ranks of a job to end before it tells its script: the reason may come a moment after they are gone. Not waited for
# where they have told one of their own.
await_reason() {
  local count=0
  [ "$code" != 0 ] && ! grep -Eqs '"outcome": "(COMPLETED|FAILED|INVALID|OOM_[A-Z]+)"' "$try_dir/result.json" || return 0
  while [ -z "$signal" ] && [ $((count += 1)) -le 15 ]; do sleep 0.2; done
}

# By the mark that it inherited: an agent that was killed leaves ranks behind, which hold the memory that the next try needs.
end_what_is_left() {
  local place count=0 found
  while [ $((count += 1)) -le 50 ]; do
    found=$(grep -slzxF "HPC_LLM_TRY_DIR=$try_dir" /proc/[0-9]*/environ)  # its exit code is 2 as soon as one cannot be read
    [ -n "$found" ] || return 0
    for place in $found; do
      place=${place#/proc/}
      kill -s KILL "${place%/environ}" 2>/dev/null
    done
    sleep 0.2
  done
}

# How the try ended, for those who judge it as a run. One that is cut off by the job's own limit ends the job.
note_try() {
  local ended by=$signal why='' oom_kills
  oom_kills=$(oom_kills_since "$kills_before")
  printf -v ended '%(%s)T' -1
  if [ -z "$signal" ] && { [ "$code" = 124 ] || { [ "$code" = 137 ] && [ "$((ended - began))" -ge "$reach" ]; }; }; then
    by=TERM why="time limit of $reach s reached"
  fi
  (
    set -C
    printf '{"schema": 1, "run_id": %s, "exit_code": %s, "signal": %s, "stage": "launch", "reason": %s, "host": %s,' \
      "$(json "${run_dir##*/}")" "$code" "$(json "$by")" "$(json "$why")" "$(json "$(hostname)")" > "$try_dir/exit.json"
    printf ' "started_at": %s, "ended_at": %s, "time_limit_s": %s, "oom_kills": %s}\n' "$began" "$ended" "$reach" "$oom_kills" \
      >> "$try_dir/exit.json"
  )
  stage=launch
  if [ -n "$why" ] && [ "$reach" -lt "$try_limit" ]; then
    ignore_signals
    reason="time limit of $time_limit s reached"
    signal=TERM
    exit "$code"
  fi
}

# launch COMMAND ...: in the background, so that a signal reaches it at once; its exit code is the script's.
launch() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  local code
  need_program "$1"
  export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"  # srun has not inherited it since Slurm 22.05
  echo "hpc-llm: $(hostname), $python, modules ${LOADEDMODULES:-none}"
  stage=launch
  if [ -n "$saves" ]; then  # what is started inherits what is ignored, and not what is heeded
    (trap '' USR1 USR2; exec "${limit[@]}" "$@") &
  else
    "${limit[@]}" "$@" &
  fi
  child=$!
  wait_for_child
  ignore_signals  # the end is settled
  [ ${#limit[@]} = 0 ] || check_time_limit "$code"
  [ -z "$signal" ] || end_by_signal
  [ ${#profiler[@]} = 0 ] || [ "$code" != 0 ] || tell_profiles
  stage='done'
  exit "$code"
}

# A signal ends `wait` early: go on until the launcher itself has ended. Its exit code is in `code`, which the caller has.
wait_for_child() {
  wait "$child"
  code=$?
  while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    code=$?
  done
  child=
}

# launch_within SECONDS COMMAND ...: where no scheduler keeps the time.
launch_within() {
  [ -n "$is_plain" ] || { plainly "${FUNCNAME[0]}" "$@"; return; }
  limit=(timeout --signal=TERM --kill-after=30 "$1")
  shift
  launch "$@"
}

# 124 from timeout, 137 where it had to use KILL.
check_time_limit() {
  local ran=$(($(date +%s) - started_at)) seconds=${limit[3]}
  [ -z "$signal" ] || return
  if [ "$1" = 124 ] || { [ "$1" = 137 ] && [ "$ran" -ge "$seconds" ]; }; then
    reason="time limit of $seconds s reached"
    signal=TERM
    exit "$1"
  fi
}
