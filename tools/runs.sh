#!/usr/bin/env bash
# Train figures' runs in the background: start RUNS STORE MINUTES [FIGURE or run id ...] | stop RUNS STORE
# RUNS is a git worktree of the committed state, so that editing here never disturbs a run; STORE holds the runs.
set -euo pipefail
cd "$(dirname "$0")/.."
what=$1 runs=$(realpath -m "$2") store=$(realpath -m "$3")
python=$PWD/.venv/bin/python
mkdir -p "$store"

running() { # is the process that was started still there, and not another with its number?
    [ -f "$store/pid" ] && ps -o args= -p "$(cat "$store/pid")" 2>/dev/null | grep -q "tools/results.py"
}

case $what in
start)
    running && { echo "runs are under way already (log: $store/log)"; exit 0; }
    if [ -e "$runs/.git" ]; then
        git -C "$runs" checkout --quiet --detach "$(git rev-parse HEAD)"
    else
        git worktree prune
        git worktree add --quiet --detach "$runs" HEAD
    fi
    cd "$runs"
    # A session of its own: on Linux priorities count within one, and without one the runs would starve behind others.
    PYTHONPATH=$runs/src OMP_NUM_THREADS=1 setsid bash -c '
        echo "${PRIORITY:--10}" >/proc/$$/autogroup 2>/dev/null || true
        exec "$@"' _ "$python" tools/results.py --store "$store" --minutes "$4" --first "${@:5}" >>"$store/log" 2>&1 &
    echo $! >"$store/pid"
    echo "started from $(git rev-parse --short HEAD) (log: $store/log)"
    ;;
stop)
    running || { echo "nothing is running"; exit 0; }
    kill -INT "$(cat "$store/pid")"
    while running; do sleep 1; done
    rm -f "$store/pid"
    echo "stopped; runs go on from their checkpoints"
    ;;
esac
