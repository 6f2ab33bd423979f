#!/usr/bin/env bash
# Build the wheel, install it into an empty environment outside the checkout, and use it there: an editable install hides
# missing files. Argument: the Python that has pip and builds the wheel.
set -euo pipefail
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip=(-m pip --quiet --disable-pip-version-check)
"$python" "${pip[@]}" wheel --no-deps --wheel-dir "$work" "$root"
"$python" -m venv "$work/env"
"$work/env/bin/python" "${pip[@]}" install -c "$root/constraints.txt" "$work"/unstuck-*.whl
cd "$work"
env/bin/python -c "import unstuck; assert 'site-packages' in unstuck.__file__, unstuck.__file__"
env/bin/unstuck predict --T 4096 --d 64 --json
env/bin/unstuck reproduce fig1c --out figures
env/bin/unstuck report figures
env/bin/unstuck train regression task.T=4 task.d=2 train.max_steps=600 --json | tee train.json
grep -q '"status": "emerged"' train.json
env/bin/unstuck report runs && grep -q "Learning curves" runs/report.html
env/bin/python -c "from unstuck.view.dashboard import __path__ as p; import pathlib; assert (pathlib.Path(p[0]) / 'static' / 'app.js').is_file()"
test -s figures/fig1c.png && test -s figures/fig1c.pdf && test -s figures/fig1c.csv && test -s figures/report.html
echo "wheel works outside the checkout"
