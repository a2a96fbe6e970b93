#!/bin/bash
# Install the programs that the tests run for real: Slurm, environment modules, Open MPI, shellcheck, Chromium.
# With apt where that is possible, saying so; otherwise it says what is missing, and the tests that need it fail.
set -u
declare -A package_of=(
  [slurmctld]=slurm-wlm [slurmd]=slurm-wlm [sbatch]=slurm-client [slurmdbd]=slurmdbd [munged]=munge
  [mariadbd]=mariadb-server [mpirun]=openmpi-bin [shellcheck]=shellcheck [chromium]=chromium
  [chromedriver]=chromium-driver
)
missing=()
for program in "${!package_of[@]}"; do
  PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || missing+=("${package_of[$program]}")
done
[ -r /usr/share/modules/init/bash ] || missing+=(environment-modules)
[ ${#missing[@]} -gt 0 ] || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)

install=(apt-get install --yes --no-install-recommends "${missing[@]}")
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
if command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
  echo "The tests need ${missing[*]}: ${as_root[*]} ${install[*]}"
  "${as_root[@]}" apt-get update --quiet >/dev/null &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}" >/dev/null && exit 0
fi
echo "The tests need programs that are not here. Install them with: ${install[*]}" >&2
