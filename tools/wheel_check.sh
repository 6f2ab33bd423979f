#!/usr/bin/env bash
# Build the source distribution, and the wheel from it; check their metadata; install the wheel into an empty environment
# outside the checkout, and use it there: an editable install hides missing files. First without extras, then with
# `papers`. Arguments: the Python that has pip; and `lowest` to install the lowest versions that pyproject.toml allows,
# instead of the newest.
set -euo pipefail
python=$(cd "$(dirname "$(command -v "$1")")" && pwd)/$(basename "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip=(-m pip --quiet --disable-pip-version-check)
constraints=(-c "$root/constraints.txt")
if [ "${2:-newest}" = lowest ]; then
    "$python" "$root/tools/lowest.py" papers >"$work/lowest.txt"
    constraints+=(-c "$work/lowest.txt")
fi
"$python" -m venv "$work/tools"
"$work/tools/bin/python" "${pip[@]}" install build twine
"$work/tools/bin/python" -m build --outdir "$work" "$root" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$work/tools/bin/python" -m twine check --strict "$work"/unstuck-*
wheel=$(echo "$work"/unstuck-*.whl)
"$python" -m venv "$work/env"
mkdir "$work/core" "$work/papers"
"$work/env/bin/python" "${pip[@]}" install "${constraints[@]}" "$wheel"
cd "$work/core"
"$work/env/bin/python" -c "import unstuck; assert 'site-packages' in unstuck.__file__, unstuck.__file__"
"$work/env/bin/python" "$root/tools/smoke.py"
"$work/env/bin/python" "${pip[@]}" install "${constraints[@]}" "$wheel[papers]"
cd "$work/papers"
"$work/env/bin/python" "$root/tools/smoke.py" papers
"$work/env/bin/python" -c "from importlib.resources import files; assert (files('unstuck.view.dashboard') / 'static' / 'app.js').is_file()"
"$work/env/bin/unstuck" --version
echo "wheel works outside the checkout, with the ${2:-newest} versions"
