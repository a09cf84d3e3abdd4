#!/usr/bin/env bash
# Prints the folder of a virtual environment with the locked dependencies; makes it once, in the user's cache,
# keyed by the lock and the Python version, so that a fresh clone on the same machine is warm.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "Python 3.11 or later is needed, $("$python" --version) found: set PYTHON to a newer one." >&2; exit 1; }
version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
digest=$( { sha256sum < requirements/dev.txt; echo "$version"; } | sha256sum | cut -c1-16)
venv=$cache/venv/$digest
if [ ! -e "$venv/.complete" ] && [ "${1:-}" != --path-only ]; then
  mkdir -p "$cache/venv"
  exec 9> "$cache/venv/$digest.lock"
  flock 9
  if [ ! -e "$venv/.complete" ]; then
    echo "Installing the locked Python dependencies (once) ..." >&2
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/dev.txt >&2
    # `kubectl muster` for every clone that shares this folder: PYTHONPATH=operator says whose code runs.
    printf '#!%s\nimport sys\n\nfrom muster.cli.main import main\n\nsys.exit(main())\n' "$venv/bin/python" > "$venv/bin/kubectl-muster"
    chmod +x "$venv/bin/kubectl-muster"
    touch "$venv/.complete"
  fi
fi
echo "$venv"
