#!/bin/sh
# Finds a Python >= 3.12, makes .venv and installs the locked packages, each checked by its hash.
# A second run is a no-op; two at once wait for each other; one that was killed is made good by the next.
#   sh bootstrap.sh [dev|runtime]      PYTHON=/path/to/python overrides the search
set -eu
cd "$(dirname "$0")"

kind="${1:-dev}"
lock="requirements/$kind.txt"
venv=.venv
venv_python="$venv/bin/python"
mark="$venv/.installed-$kind"

wanted() { # scripts in a venv name its directory: a moved clone starts anew
    echo "$(cksum < "requirements/$1.txt") in $(pwd)"
}

works() {
    "$1" -c 'import sys, ssl, sqlite3, fcntl
sys.exit(sys.version_info < (3, 12) or sqlite3.sqlite_version_info < (3, 37))' > /dev/null 2>&1
}

is_ready() {
    [ "$(cat "$mark" 2> /dev/null)" = "$(wanted "$kind")" ] && works "$venv_python"
}

find_python() {
    # A pyenv shim may be on the PATH and still exit 127: each candidate is run, never just looked up.
    pyenv="${PYENV_ROOT:-${HOME:-}/.pyenv}/versions"
    for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.14 python3 python \
        "$pyenv"/3.13.*/bin/python3 "$pyenv"/3.12.*/bin/python3 "$pyenv"/3.14.*/bin/python3 \
        /usr/local/bin/python3.1[234] /opt/python*/bin/python3 /opt/homebrew/bin/python3.1[234] \
        .python/*/bin/python3; do
        if works "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

make_venv() {
    if ! "$1" -c 'import ensurepip' 2> /dev/null; then # Debian keeps it in a package of its own
        if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
            echo "bootstrap: $1 has no ensurepip; install the package python3-venv" >&2
            return 1
        fi
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -yqq python3-venv >&2
    fi
    rm -rf "$venv"
    "$1" -m venv "$venv"
}

pip_install() {
    "$venv_python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r "$1"
}

fetch_python() { # any Python 3 can run uv, and uv brings a newer one
    echo "bootstrap: no Python 3.12 or newer here; fetching one" >&2
    make_venv python3 && pip_install requirements/uv.txt &&
        "$venv/bin/uv" python install --system-certs --no-progress --no-bin --install-dir .python 3.13 && return
    echo "bootstrap: install Python 3.12 or newer, or set PYTHON=/path/to/python3.13" >&2
    return 1
}

install_locked() {
    echo "bootstrap: installing $lock with $("$venv_python" --version)" >&2
    # uv takes seconds; pip takes a minute, but knows all that this machine's pip configuration says.
    pip_install requirements/uv.txt &&
        "$venv/bin/uv" pip install -q --system-certs --python "$venv_python" --require-hashes --no-deps -r "$lock" &&
        return
    echo "bootstrap: uv could not; installing with pip" >&2
    pip_install "$lock"
}

if is_ready; then exit 0; fi

# The kernel frees this lock when the last process that holds descriptor 9 is gone, so none is ever stale.
python="$(find_python || echo python3)"
exec 9> .venv.lock
"$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
if is_ready; then exit 0; fi # another bootstrap did it while this one waited

# Without the mark of a finished installation, here, the environment may be half made: begin anew.
if ! works "$venv_python" || ! cat "$venv"/.installed-* 2> /dev/null | grep -qF " in $(pwd)"; then
    if ! works "$python"; then
        fetch_python
        python="$(find_python)"
    fi
    make_venv "$python"
fi
rm -f "$venv"/.installed-*
install_locked
if [ "$kind" = dev ]; then wanted runtime > "$venv/.installed-runtime"; fi # the one holds the other
wanted "$kind" > "$mark"
