#!/bin/bash
# Everything that `pip install ckptstorm` needs, in one folder, for a cluster without internet.
#
#   with internet:      slurm/wheelhouse.sh WHEELHOUSE [SOURCE]
#   on the cluster:     python3 -m venv env && env/bin/pip install --no-index --find-links WHEELHOUSE ckptstorm
#
# Wheels are of this machine's processor and Python: run it where both are as on the cluster. For another processor,
# such as aarch64 from a laptop, name its platform; ckptstorm itself is then packed as source, and built on the
# cluster (needs a C compiler there; without one it installs without its native engine):
#
#   PLATFORM=manylinux_2_28_aarch64 PYTHON_VERSION=3.11 slurm/wheelhouse.sh WHEELHOUSE [SOURCE]
#
# An MPI is not among it: the cluster's own is found when its module is loaded (README.md). EXTRA=local adds one.
set -euo pipefail
house=${1:?usage: wheelhouse.sh WHEELHOUSE [SOURCE]}
source=${2:-$(dirname -- "$0")/..}
python=${PYTHON:-python3}
extra=${EXTRA:+[$EXTRA]}
mkdir -p -- "$house"
if [ -z "${MACHINE:-}" ]; then
  "$python" -m pip wheel --quiet --wheel-dir "$house" -- "$source$extra"
else
  # The requirements are those of this very source; only wheels of the other platform are taken.
  target=(--python-version "${PYTHON_VERSION:?such as 3.11}" --only-binary=:all:)
  for tag in manylinux_2_17 manylinux2014 manylinux_2_24 manylinux_2_26 manylinux_2_27 manylinux_2_28; do
    target+=(--platform "${tag}_$MACHINE")
  done
  "$python" - "$source/pyproject.toml" "${EXTRA:-}" > "$house/requirements.txt" <<'PYTHON'
import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))
wanted = project["project"]["dependencies"] + project["project"]["optional-dependencies"].get(sys.argv[2], [])
print("\n".join(wanted + project["build-system"]["requires"]))
PYTHON
  "$python" -m pip download --quiet "${target[@]}" --dest "$house" -r "$house/requirements.txt"
  tar -C "$source" -czf "$house/ckptstorm-source.tar.gz" ckptstorm jobs slurm meson.build pyproject.toml README.md LICENSE
fi
echo "$house: $(ls "$house" | wc -l) files"
