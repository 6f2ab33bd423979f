"""What an installation without extras can do: every optional module is made unimportable in a new process."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import unstuck as unstuck_package
from refusals import sentence
from unstuck.cli import COMMANDS
from unstuck.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
OPTIONAL = {package for packages in EXTRAS.values() for package in packages} | {"statsmodels", "transformers"}
BLOCKED = "import sys; sys.modules.update(dict.fromkeys({names!r})); {code}"


def python(code, *words, without=OPTIONAL, cwd=None):
    blocked = BLOCKED.format(names=sorted(without), code=code)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-c", blocked, *words], capture_output=True, text=True, cwd=cwd, env=environment
    )


def unstuck(*words, **options):
    return python("from unstuck.cli import main; sys.exit(main(sys.argv[1:]))", *words, **options)


CORE = [
    "--help",
    "predict --T 64 --d 8 --json",
    "fit runs.csv T+d --predict T=128 d=8 --json",
    "forecast curve.csv --json",
    "keys regression --json",
    "sweep regression task.T=4,8 task.d=2 --dry-run --json",
    "sweep regression task.T=4 task.d=2 train.max_steps=40 --workers 1 --json",
    "runs --json",
]
WITHOUT = {
    "reproduce fig1c": "papers",
    "figures": "papers",
    "report runs": "papers",
    "serve runs": "app",
    "train regression task.T=4 task.d=2 --tensorboard logs": "trackers",
    "train regression task.T=4 task.d=2 --wandb project": "trackers",
    "sweep regression task.T=4,8 --ray auto": "ray",
}
ONE_AFTER_THE_OTHER = """
import contextlib, io, json
from unstuck.cli import main
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words.split())
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A curve and a table of runs."""
    path = tmp_path_factory.mktemp("core")
    rows = [f"{T},{d},{2 * T * d**0.5}" for T in (16, 32, 64) for d in (4, 8)]
    (path / "runs.csv").write_text("\n".join(["T,d,plateau_steps", *rows]))
    (path / "curve.csv").write_text("\n".join(["step,loss", *(f"{100 * i},{0.5 - i * 1e-5}" for i in range(60))]))
    return path


@pytest.fixture(scope="module")
def said(directory):
    """Exit code, stdout and stderr of all commands, in one process without any extra; the first makes a run."""
    words = ["train regression task.T=4 task.d=2 train.max_steps=40 --json", *CORE, *WITHOUT]
    done = python(ONE_AFTER_THE_OTHER, json.dumps(words), cwd=directory)
    found = dict(zip(words, map(json.loads, done.stdout.splitlines()), strict=True))
    code, out, err = found[words[0]]
    assert code == 0, err
    assert json.loads(out)["status"] == "emerged"
    return found


@pytest.mark.parametrize("words", CORE)
def test_the_core_needs_no_extra(said, words):
    code, out, err = said[words]
    assert code == 0, err
    if "--json" in words:
        assert json.loads(out)


@pytest.mark.parametrize(("words", "extra"), WITHOUT.items())
def test_a_command_without_its_extra_names_it_in_one_sentence(said, words, extra):
    sentence(*said[words], f"pip install 'unstuck[{extra}]'")


PICTURES = """
import pandas, unstuck.probes
from unstuck.theory import Flow
for draw in (
    lambda: unstuck.Curve.from_rows([{'step': 0, 'loss': 1.0}]).plot(),
    lambda: Flow(T=8, d=2).plot(),
    lambda: unstuck.probes.draw_attention(None, [(0, 0)], [0]),
    lambda: unstuck.probes.draw_heads(pandas.DataFrame(columns=['layer', 'head']), []),
):
    try:
        draw()
    except unstuck.errors.InvalidCombination as e:
        print(e)
"""


def test_a_picture_without_its_extra_names_it():
    done = python(PICTURES)
    assert [("pip install 'unstuck[papers]'" in line) for line in done.stdout.splitlines()] == [True] * 4, done.stderr


def test_watch_needs_neither_extras_nor_fcntl():
    code = "import unstuck; unstuck.Watch; unstuck.Forecaster; unstuck.train; unstuck.DiversitySchedule"
    quiet = "import warnings; warnings.simplefilter('ignore')"  # filelock says that its lock is a weaker one then
    done = python(f"{quiet}; {code}; import unstuck.runner.sweep", without=OPTIONAL | {"fcntl"})
    assert (done.returncode, done.stderr) == (0, "")


def test_help_and_predict_import_neither_torch_nor_pandas():
    induction = ["predict", "induction", "--batch", "32", "--context", "128"]
    for words in (["--help"], ["predict", "--T", "512", "--d", "64"], ["predict", "--help"], induction):
        done = unstuck(*words, without=OPTIONAL | {"torch", "pandas"})
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("said")
def test_the_table_of_runs_does_not_import_torch(directory):
    assert unstuck("runs", "--json", cwd=directory, without=OPTIONAL | {"torch"}).returncode == 0


def test_extras_are_those_that_pyproject_declares():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {"pillow": "PIL"}
    for extra, packages in EXTRAS.items():
        found = [re.split("[><=]", requirement)[0] for requirement in declared[extra]]
        assert sorted(names.get(name, name) for name in found) == sorted(packages)
    assert declared["all"] == [f"unstuck[{','.join(EXTRAS)}]"]
    assert {command.extra for command in COMMANDS.values()} <= {"", *EXTRAS}


def test_dir_lists_what_the_package_offers():
    import unstuck

    assert set(dir(unstuck)) == set(unstuck.__all__)
    assert all(hasattr(unstuck, name) for name in dir(unstuck))
    assert (Path(unstuck.__file__).parent / "py.typed").is_file()


def test_one_version_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert unstuck_package.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == version
    assert f"\ndate-released: {newest[2]}\n" in (ROOT / "CITATION.cff").read_text()
