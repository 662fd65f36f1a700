#!/usr/bin/env bash
# Makes .venv from the lock files. usage: scripts/setup.sh [dev]
# Finds a Python of at least 3.11, or installs one by apt where that is possible, or says what to do.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-run}
if command -v flock >/dev/null; then # `make up` here and `make test` there: the second waits.
    exec 9<scripts/setup.sh
    flock 9
fi
say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

apt_install() { # Only where apt is there and we may use it.
    command -v apt-get >/dev/null || return 1
    local sudo=""
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
        sudo="sudo -n"
    fi
    say "installing $* by apt"
    $sudo apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "$@" >/dev/null
}

find_python() {
    local name
    for name in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11 python3; do
        if command -v "$name" >/dev/null &&
            "$name" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    return 1
}

is_sound() { # Made to the end (`activate` comes last), for this folder, by a Python that is still there.
    grep -qsF "$(pwd -P)/.venv" .venv/bin/activate && .venv/bin/python -c 'import pip' 2>/dev/null
}

if ! is_sound; then
    if [ -e .venv ]; then
        say ".venv is incomplete, or was made for another folder or Python: making it anew"
        rm -rf .venv
    fi
    python=$(find_python) || { apt_install python3 python3-venv && python=$(find_python); } ||
        fail "no Python 3.11 or later found. Install one (on Debian: apt-get install python3 python3-venv) or set PYTHON=/path/to/python3."
    say "making .venv with $("$python" --version)"
    if ! why=$("$python" -m venv .venv 2>&1); then
        rm -rf .venv
        { apt_install python3-venv && "$python" -m venv .venv; } ||
            fail "can't make a virtual environment (on Debian: apt-get install python3-venv). $python says: $why"
    fi
fi

install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }
compile=--compile

stamp() { # A lock file's content decides whether it is installed.
    local lock=$1 mark=.venv/.installed-$1
    if ! cmp -s "$lock" "$mark"; then
        say "installing $lock"
        install $compile --require-hashes -r "$lock" || fail "pip could not install $lock; see above. Are the package registries reachable?"
        cp "$lock" "$mark"
    fi
}

stamp requirements.lock
compile=--no-compile # Tools for work: whoever uses one compiles it then.
[ "$what" != dev ] || stamp requirements-dev.lock
if ! cmp -s pyproject.toml .venv/.installed-pyproject.toml || ! [ -x .venv/bin/dmq ]; then
    say "installing dmq itself"
    install --no-deps --no-build-isolation --editable . || fail "pip could not install dmq itself; see above."
    .venv/bin/python -m compileall -q src/dmq # So that the first start is as quick as the others.
    cp pyproject.toml .venv/.installed-pyproject.toml
fi
if [ "$what" = dev ] && ! command -v kcat >/dev/null; then
    apt_install kcat || say "kcat is not here and can't be installed: its tests will be skipped"
fi
