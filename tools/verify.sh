#!/usr/bin/env bash
# Are the generated files what their sources say? Compares contents and writes nothing, so it works in a dirty tree.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(tools/venv.sh)/bin/python
status=0

PYTHONPATH=operator:tools "$python" -m apidocs.render --check || status=1
PYTHONPATH=operator:tools "$python" -m monitoring.page --check || status=1
PYTHONPATH=operator:tools "$python" -m monitoring.dashboards --check || status=1

# Locking needs the network; that each pin asked for is the one that is locked can be seen without.
for name in agent operator dev release stores; do
  while read -r pin; do
    grep -qiF -- "$pin " "requirements/$name.txt" || {
      echo "requirements/$name.txt does not hold $pin: run \`make lock\`" >&2
      status=1
    }
  done < <(grep -E '^[A-Za-z0-9._-]+==' "requirements/$name.in")
done
exit "$status"
