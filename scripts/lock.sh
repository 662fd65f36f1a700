#!/usr/bin/env bash
# Pins every dependency with its hashes: requirements.lock (to run), requirements-dev.lock (to work on it).
set -euo pipefail
cd "$(dirname "$0")/.."
pin() {
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-annotate "$@" pyproject.toml scripts/build.in
}
pin --output-file requirements.lock
pin --extra dev --extra bench --extra postgres --extra spark --constraint requirements.lock --output-file requirements-dev.lock
