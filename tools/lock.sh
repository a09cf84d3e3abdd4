#!/usr/bin/env bash
# Locks requirements/*.in into requirements/*.txt: exact versions with hashes, no registry addresses.
set -euo pipefail
cd "$(dirname "$0")/.."

lock() { # NAME PYTHON [OPTION...]
  uv pip compile --quiet --universal --python-version "$2" --generate-hashes --no-emit-index-url --no-header \
    --custom-compile-command "make lock" "${@:3}" "requirements/$1.in" -o "requirements/$1.txt"
}

for name in agent operator cli dev release stores; do
  lock "$name" 3.11
done
lock recipes 3.13 --override requirements/recipes.override
