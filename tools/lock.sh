#!/usr/bin/env bash
# Locks requirements/*.in into requirements/*.txt: exact versions with hashes, no registry addresses.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in operator cli dev stores; do
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
    --custom-compile-command "make lock" "requirements/$name.in" -o "requirements/$name.txt"
done
