#!/bin/sh
# root.sh: fetches the libraries of aarch64 that tandem is linked with, from Debian, into a folder.
#
#   sh tests/arm/root.sh FOLDER
#
# apt keeps its lists of aarch64 in that folder too, so the system's own are as they were and nobody
# needs to be root. Quick when the folder is complete.
set -eu

packages='libpcre2-dev libutf8proc-dev libjansson-dev'
mkdir -p "$1"
root=$(cd "$1" && pwd)
[ ! -f "$root/complete" ] || exit 0

echo "tandem: fetching for aarch64: $packages" >&2
mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial"
apt() {
    (cd "$root/apt" && apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
        -o APT::Sandbox::User= -o Dir::State::Lists="$root/apt/lists" \
        -o Dir::Cache="$root/apt/cache" "$@")
}
# shellcheck disable=SC2086
if ! { apt update && apt download $packages; } >"$root/log" 2>&1; then
    tail -n 20 "$root/log" >&2
    exit 1
fi
for package in "$root"/apt/*.deb; do dpkg-deb -x "$package" "$root"; done
rm -rf "$root/apt"
touch "$root/complete"
