#!/bin/sh
# Makes .venv from envs/requirements.lock; does and says nothing where it is up to date. PYTHON chooses the interpreter.
# `setup.sh test` adds envs/test.lock, which only the tests need.
set -eu
cd "$(dirname "$0")/.."
lock=envs/${1:-requirements}.lock
stamp=.venv/.installed${1:+-$1}
wanted=$(cat "$lock" pyproject.toml | cksum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

fail() { echo "setup: $1" >&2; exit 2; }

python=${PYTHON:-}
for name in python3.11 python3.12 python3.13 python3; do
    [ -n "$python" ] || ! command -v "$name" >/dev/null 2>&1 || ! "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || python=$name
done
[ -n "$python" ] || fail "needs Python 3.11 (3.12 and 3.13 may work); install it, or name one: make setup PYTHON=/path/to/python3.11"
command -v "$python" >/dev/null 2>&1 || fail "PYTHON=$python: no such program"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python lacks venv or pip; on Debian: apt-get install python3-venv"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || fail "$python is $("$python" -V 2>&1); needs Python 3.11"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
say() { echo "setup: $1"; }
[ -x .venv/bin/python ] || "$python" -m venv .venv >"$log" 2>&1 || fail "cannot make .venv: $(tail -n 1 "$log")"
case "$lock" in */test.lock) cost="1 GB";; *) cost="a few minutes, 2 GB";; esac
say "installing $(grep -c == "$lock") pinned package(s) of $lock into .venv (once; $cost)"
pip="env -u PYTHONPATH .venv/bin/python -m pip --disable-pip-version-check"
if ! $pip install -q -r "$lock" >"$log" 2>&1; then
    if grep -qiE 'name resolution|connection|timed out|unreachable|proxy|from versions: none' "$log"; then
        fail "no package index can be reached; check the network, then run this again"
    fi
    fail "pip failed: $(grep -iE '^error|error:' "$log" | head -n 1)"
fi
$pip install -q --no-deps --no-build-isolation -e . >"$log" 2>&1 || fail "cannot install the project itself: $(tail -n 1 "$log")"
echo "$wanted" >"$stamp"
say "done"
