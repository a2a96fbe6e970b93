"""Stand-ins for nsys, ncu and rocprofv3: the command lines of the real ones, and a report where they leave one."""

from __future__ import annotations

from pathlib import Path

_NSYS = """\
#!/bin/bash
[ "$1" = profile ] || { echo "nsys: unknown command $1" >&2; exit 1; }
shift
while [ "${1#--}" != "$1" ]; do
  case $1 in
    --output=*) out=${1#*=} ;;
    --force-overwrite=true | --trace=* | --capture-range=cudaProfilerApi | --capture-range-end=stop | --cuda-graph-trace=node) ;;
    *) echo "unrecognised option '$1'" >&2; exit 1 ;;
  esac
  shift
done
"$@"
code=$?
echo "report of $$" > "$out.nsys-rep"
exit $code
"""
_NCU = """\
#!/bin/bash
while [ "${1#--}" != "$1" ]; do
  case $1 in
    --export=*) out=${1#*=} ;;
    --force-overwrite | --target-processes=all | --profile-from-start=off | --launch-count=*) ;;
    *) echo "==ERROR== unrecognised option '$1'" >&2; exit 1 ;;
  esac
  shift
done
"$@"
code=$?
if [ -n "$COUNTERS_LOCKED" ]; then
  echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0."
  echo "==WARNING== No kernels were profiled."
else
  echo kernels > "$out.ncu-rep"
fi
exit $code
"""
_ROCPROFV3 = """\
#!/bin/bash
while [ "$1" != -- ]; do
  case $1 in
    --output-directory=*) folder=${1#*=} ;;
    --output-file=*) out=${1#*=} ;;
    --runtime-trace | --marker-trace | --selected-regions | --output-format=pftrace) ;;
    *) echo "rocprofv3: error: unrecognized arguments: $1" >&2; exit 2 ;;
  esac
  shift
done
shift
"$@"
code=$?
echo spans > "$folder/${out}_results.pftrace"
exit $code
"""


def write_profilers(folder: Path) -> Path:
    """All three into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"nsys": _NSYS, "ncu": _NCU, "rocprofv3": _ROCPROFV3}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder
