"""What CONTRIBUTING and examples/ tell a newcomer to do works as written."""

import json
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

from unstuck.cli import main

ROOT = Path(__file__).resolve().parent.parent
SMALL = ["model.width=16", "model.heads=1", "model.qk=8", "train.max_steps=8", "task.T=4", "task.d=1"]


def test_the_ten_minute_task_of_contributing(tmp_path, monkeypatch, capsys):
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page[page.index("## Add your own task in ten minutes") :]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
    monkeypatch.chdir(tmp_path)
    Path("my_task.py").write_text(textwrap.dedent(code))
    assert main(["train", "my_task.py", *SMALL, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["status"], result["steps"]) == ("censored", 8)
    assert main(["sweep", "my_task.py", *SMALL, "seed=0,1", "--out", "runs", "--json", "--workers", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["censored"] == 2


def test_the_example_task_sweeps_fits_and_plots(tmp_path):
    words = [sys.executable, str(ROOT / "examples/new_task.py"), "--small", "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "plateau =" in done.stdout
    assert (tmp_path / "flagged_sum.png").read_bytes().startswith(b"\x89PNG")


def test_the_example_task_takes_less_than_forty_lines():
    source = (ROOT / "examples/new_task.py").read_text()
    task = source[source.index("@config") : source.index("def main")]
    assert len([line for line in task.splitlines() if line.strip()]) < 40
    assert "FlaggedSum" in runpy.run_path(str(ROOT / "examples/new_task.py"), run_name="example")
