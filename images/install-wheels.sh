#!/bin/sh
# Installs the Python packages that a lock names (requirements with hashes) while an image is built, and removes pip
# again. Wheels come from build/images/wheels/NAME/ of the build context where `make images` has put them (NAME.txt is
# the lock), else from pip's index. A stage of its own for pip would be more usual, but comparing the files copied out of it costs more than all
# the rest of a rebuild. A package that is published as source alone, and builds with setuptools, may be named.
# Usage in a Dockerfile: RUN --mount=type=bind,target=/context sh /context/images/install-wheels.sh LOCK TARGET [SOURCE]
set -eu
lock=$1
target=$2
source=${3:-}
wheels=/context/build/images/wheels/$(basename "$lock" .txt)
# Always the same path: pip writes digests of scripts that name it into the packages' records.
scratch=/tmp/install-wheels
mkdir "$scratch"

installed() { dpkg-query --show --showformat='${Package}\n' | sort; }

installed > "$scratch/before"
sh /context/images/install-packages.sh python3-venv
if [ -n "$source" ]; then sh /context/images/install-packages.sh python3-setuptools; fi
installed > "$scratch/after"

python3 -m venv ${source:+--system-site-packages} "$scratch/venv"
if [ -d "$wheels" ]; then from="--no-index --find-links $wheels"; else from=""; fi
# shellcheck disable=SC2086 # two words or none
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --root-user-action ignore --no-cache-dir \
    --no-compile --no-deps --require-hashes --only-binary :all: ${source:+--no-binary "$source" --no-build-isolation} \
    $from --target "$target" --requirement "$lock"
rm -rf "$target/bin"
# Unchecked bytecode: the root file system is read-only at run time, so nothing could be written back.
python3 -m compileall -q --invalidation-mode unchecked-hash "$target"

# shellcheck disable=SC2046 # one word for each package
DEBIAN_FRONTEND=noninteractive dpkg --force-unsafe-io --purge $(comm -13 "$scratch/before" "$scratch/after")
rm -rf "$scratch" /var/log/dpkg.log /var/log/alternatives.log /var/lib/dpkg/*-old /var/cache/debconf/*-old
