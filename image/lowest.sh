#!/bin/sh
# Tests with the oldest version of each dependency that pyproject.toml allows: `make lowest`. What is not named there is new.
# The tools of the tests are new too: what is held to its word is what users install. Contacts the package index only.
# The unit and contract suites, as far as they need no Kafka, the clients with a Redis, its sentinels and a cluster, and one
# whole updater with the client, Redis and SQLite.
set -eu
cd "$(dirname "$0")/.."
: "${UV:=uv}" "${PYTHON:=python3}"
folder=${1:-build/lowest}
"$UV" venv --quiet --clear --no-config --python "$PYTHON" "$folder"
"$UV" pip compile --quiet --no-config --python "$folder/bin/python" --resolution lowest-direct pyproject.toml \
    --extra updater --extra postgres --extra replication --extra sqlite --extra kafka --extra demo --output-file "$folder/versions"
"$UV" pip install --quiet --no-config --python "$folder/bin/python" --constraint "$folder/versions" --editable '.[dev]'
grep -v '^ *#' "$folder/versions" | tr '\n' ' '
echo
"$folder/bin/pytest" -q -n 2 tests/unit tests/contract -k "not kafka" -m "not campaign"
# redis-py 6.2 refuses keys that are a bytearray, warns of arguments that it gives itself, and leaves connections open
"$folder/bin/pytest" -q -n 2 tests/integration/test_client_redis.py tests/integration/test_client_sentinel.py \
    tests/integration/test_client_cluster.py -k "not bytearray" -W ignore::pytest.PytestUnraisableExceptionWarning \
    -W "ignore:Call to '__init__' function with deprecated usage of input argument/s:DeprecationWarning"
"$folder/bin/pytest" -q -n 0 tests/integration/test_service_life.py -k sqlite
