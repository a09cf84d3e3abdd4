#!/bin/sh
# Installs one Debian package with what it needs while an image is built. The packages come from
# build/images/debs/NAME/ of the build context where `make images` has put them, else from the network.
# Usage in a Dockerfile: RUN --mount=type=bind,target=/context sh /context/images/install-packages.sh NAME
set -eu
export DEBIAN_FRONTEND=noninteractive
name=$1
folder=/context/build/images/debs/$name

# The layer is written once and thrown away when the build fails: syncing every file buys nothing.
install() {
    apt-get install -q -y --no-install-recommends -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 \
        -o Dpkg::Options::=--force-unsafe-io \
        -o Dpkg::Options::=--path-exclude='/usr/share/man/*' \
        -o Dpkg::Options::=--path-exclude='/usr/share/locale/*' \
        -o Dpkg::Options::=--path-exclude='/usr/share/doc/*' \
        -o Dpkg::Options::=--path-include='/usr/share/doc/*/copyright' \
        "$@"
}

if [ -d "$folder" ]; then
    install "$folder"/*.deb
else
    apt-get update -q
    install "$name"
fi
# Also what differs from one build to the next: the logs, and the inodes in the aux-cache.
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
    /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/lib/dpkg/*-old
