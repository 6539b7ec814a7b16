#!/bin/sh
# The verdict of check.py, with nothing of the agent's: no variables, no start files, no modules but Python's own.
cd "$(dirname "$0")" || exit 1
exec env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp LC_ALL=C.UTF-8 python3 -I -S -B "$PWD/verdict.py"
