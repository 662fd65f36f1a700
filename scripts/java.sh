#!/usr/bin/env bash
# Finds a Java of at least 17, which Spark runs on, or installs a headless one by apt, or says what to do.
# usage: scripts/java.sh    prints the folder for JAVA_HOME: `export JAVA_HOME=$(scripts/java.sh)`
# Everything else it says goes to stderr.
set -euo pipefail
least=17
say() { echo "java: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

major_of() { # 17 of `openjdk version "17.0.15" 2025-04-15`; 8 of `java version "1.8.0_392"`.
    "$1" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

is_good() {
    local major
    [ -x "$1" ] || return 1
    major=$(major_of "$1") || return 1
    [ -n "$major" ] && [ "$major" -ge "$least" ]
}

home_of() { # The folder that has bin/java, with links followed.
    dirname "$(dirname "$(readlink -f "$1")")"
}

find_java() {
    local java
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java /opt/java/*/bin/java \
        /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java; do
        if [ -n "$java" ] && is_good "$java"; then
            home_of "$java"
            return
        fi
    done
    return 1
}

apt_install() { # Only where apt is there and we may use it.
    command -v apt-get >/dev/null || return 1
    local sudo=""
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
        sudo="sudo -n"
    fi
    say "no Java $least or later found: installing $* by apt"
    $sudo apt-get update -qq >&2 &&
        DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >&2
}

find_java && exit
apt_install openjdk-17-jre-headless || apt_install default-jre-headless || true
find_java ||
    fail "Spark needs Java $least or later and none is found. Install one (on Debian: apt-get install openjdk-17-jre-headless; on macOS: brew install openjdk@17) or set JAVA_HOME."
