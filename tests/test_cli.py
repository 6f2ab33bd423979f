"""The command: answers, exit codes, one sentence for a mistake, no traceback, no torch."""

import io
import json
import math
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amounts import examples
from refusals import names, refused_command
from unstuck.cli import COMMANDS, main
from unstuck.laws.regression import Sizes, TransformerLaw
from unstuck.papers.catalogue import is_available
from unstuck.papers.cost_table import cost_of
from unstuck.papers.figure import load
from unstuck.theory.setting import MAX_D, MAX_T, MAX_THRESHOLD, MIN_THRESHOLD
from unstuck.view.figures import catalogue_columns

ROOT = Path(__file__).resolve().parent.parent
QUIET = [HealthCheck.function_scoped_fixture]
IN_PROCESS = settings(max_examples=examples(500), deadline=None, suppress_health_check=QUIET)


def run(capsys, *words):
    code = main([str(w) for w in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_predict_gives_the_contracts_keys_and_nothing_else_on_stdout(capsys):
    code, out, err = run(capsys, "predict", "--T", 4096, "--d", 64, "--B", 8, "--json")
    answer = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert answer["plateau"] == pytest.approx(14782, rel=0.005)
    assert answer["flow"] == "exact"
    assert answer["rate"] == pytest.approx(math.sqrt(8) / (8 * 4096))
    assert answer["escape_time"] > answer["plateau"]


def test_predict_in_words_has_number_formula_and_assumptions(capsys):
    code, out, _ = run(capsys, "predict", "--T", 512, "--d", 64)
    assert code == 0
    assert names(out, "5,314", 0.000244141, "√(π/2)", "W = 0", "T ≫ B")  # plateau, rate, formula, assumptions


def test_predict_says_when_there_is_no_answer(capsys):
    code, out, _ = run(capsys, "predict", "--T", 64, "--d", 4, "--p", 1, "--json")
    answer = json.loads(out)
    assert (code, answer["plateau"]) == (0, None)
    assert names(answer["reason"], 0.375)  # the loss that remains, with 3 of 4 directions not learnt
    code, out, _ = run(capsys, "predict", "--T", 64, "--d", 4, "--p", 1)
    assert code == 0
    assert answer["reason"] in " ".join(out.split())


def sizes(high):
    return st.one_of(st.integers(1, 50), st.integers(1, high), st.floats(0, math.log10(high)).map(lambda x: int(10**x)))


@st.composite
def valid(draw):
    T = max(2, draw(sizes(MAX_T)))
    B = draw(st.one_of(st.just(1), st.integers(1, T - 1), st.just(T - 1)))
    p = draw(st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 1), st.floats(0, 1).map(lambda x: 1 - x**8)))
    threshold = draw(st.floats(MIN_THRESHOLD, MAX_THRESHOLD))
    flow = draw(st.sampled_from(["exact", "reduced"]))
    return ["--T", T, "--d", draw(sizes(MAX_D)), "--B", B, "--p", p, "--threshold", threshold, "--flow", flow]


@given(words=valid())
@example(words=["--T", MAX_T, "--d", MAX_D, "--B", MAX_T - 1, "--p", 0.5, "--threshold", MIN_THRESHOLD])
@example(words=["--T", MAX_T, "--d", MAX_D, "--p", 1 - 2**-53])
@example(words=["--T", 1626, "--d", 5205, "--B", 357, "--p", 1, "--threshold", MAX_THRESHOLD])
@example(words=["--T", 10, "--d", 3, "--threshold", MAX_THRESHOLD])
@IN_PROCESS
def test_every_valid_problem_has_a_positive_answer_or_a_reason(capsys, words):
    code, out, err = run(capsys, "predict", *words, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    if answer["plateau"] is None:
        assert len(answer["reason"]) > 20
    else:
        assert 0 < answer["plateau"] < math.inf
        assert answer["reason"] is None
    assert 0 < answer["rate"] < math.inf
    assert 0 <= answer["escape_time"] < math.inf


JUNK = st.one_of(
    st.sampled_from(
        ["nan", "inf", "-inf", "", " ", "abc", "1e3", "0x10", "None", "1,5", "--", "١٢٫٥", "9" * 400, "9" * 5000]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
        lambda s: not _is_number(s) and not s.startswith("-")
    ),
)


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


@st.composite
def invalid(draw):
    """A valid problem with one thing made wrong: (option, words)."""
    words = list(map(str, draw(valid())))
    option = draw(st.sampled_from(["--T", "--d", "--B", "--p", "--threshold", "--flow"]))
    T = int(words[words.index("--T") + 1])
    outside = {
        "--T": st.one_of(st.integers(max_value=1), st.integers(MAX_T + 1), st.floats().map(repr), JUNK),
        "--d": st.one_of(st.integers(max_value=0), st.integers(MAX_D + 1), st.floats().map(repr), JUNK),
        "--B": st.one_of(st.integers(max_value=0), st.integers(T), st.floats().map(repr), JUNK),
        "--p": st.one_of(
            st.floats(max_value=0, exclude_max=True), st.floats(1, exclude_min=True), st.just(math.nan), JUNK
        ),
        "--threshold": st.one_of(
            st.floats(max_value=MIN_THRESHOLD, exclude_max=True),
            st.floats(MAX_THRESHOLD, exclude_min=True),
            st.just(0.49999999999999994),
            st.just(math.nan),
            JUNK,
        ),
        "--flow": JUNK,
    }[option]
    value = str(draw(outside))
    words[words.index(option) + 1] = value
    if value.startswith("-") and draw(st.booleans()):
        i = words.index(option)
        words[i : i + 2] = [f"{option}={value}"]
    return option, words


@given(case=invalid())
@IN_PROCESS
def test_every_invalid_problem_is_refused_by_one_sentence_naming_the_option(capsys, case):
    option, words = case
    refused_command(capsys, "predict", *words, says=[option])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["predict", "--T", "8"], "--d"),
        (["predict", "--T", "8", "--d", "4", "--tresh", "1"], "--threshold"),
        (["predikt"], "predikt"),
        (["predict", "--T", "8", "--d", "4", "extra"], "extra"),
        (["reproduce", "fig1d"], "'fig1c'"),
        (["reproduce", "fig1c", "--profile", "cpuu"], "'cpu'"),
        (["reproduce", "fig1c", "--workers", "-1"], "--workers"),
        (["reproduce", "fig3"], "fig3-large"),
        (["reproduce", "fig1"], "fig1a, fig1b, fig1c?"),
        (["reproduce", "../../cli"], "unstuck figures"),
        (["predict", "--T", "8", "--d", "4", "--flow", "exat"], "'exact'"),
        (["fit", "nowhere.csv", "d"], "nowhere.csv"),
        (["fit", "results/fig1c.csv", "T + d", "--level", "abc"], "--level"),
        (["fit", "results/fig1c.csv", "T + d", "--level", "nan"], "--level"),
        (["fit", "results/fig1c.csv", "1" + "0" * 400 + "*d + T"], "formula"),
        (["fit", "results/fig1c.csv", "plateau_steps + T"], "plateau_steps"),
        (["fit", "results/fig1c.csv", "T + D"], "'d'"),
        (["report", "nowhere"], "unstuck reproduce"),
    ],
)
def test_mistakes_get_one_sentence(capsys, monkeypatch, words, says):
    monkeypatch.chdir(ROOT)
    refused_command(capsys, *words, says=[says])


@pytest.mark.parametrize("words", [["predict", "--T", "512", "--d", "64"], ["figures"], ["figures", "--json"]])
def test_a_terminal_without_greek_letters_is_no_reason_to_fail(words):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([Path(sys.executable).parent / "unstuck", *words], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_an_unfinished_integration_is_not_called_endless(capsys, monkeypatch):
    monkeypatch.setattr("unstuck.theory.integrate.MAX_SOLVER_STEPS", 3)
    code, out, _ = run(capsys, "predict", "--T", 64, "--d", 4, "--json")
    reason = json.loads(out)["reason"]
    assert (code, json.loads(out)["plateau"]) == (0, None)
    endless = json.loads(run(capsys, "predict", "--T", 64, "--d", 4, "--p", 1, "--json")[1])["reason"]
    assert reason != endless
    for p, shown in ((0, reason), (1, endless)):
        said = " ".join(run(capsys, "predict", "--T", 64, "--d", 4, "--p", p)[1].split())
        assert [why for why in (reason, endless) if why in said] == [shown]


def test_help_shows_its_commands(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for command in ("predict", "fit", "reproduce", "figures", "report"):
        assert command in out


def test_the_list_of_figures_takes_a_line_each_on_a_narrow_terminal(capsys):
    code, out, _ = run(capsys, "figures", "--json")
    rows = json.loads(out)["figures"]
    for width in (80, 120):
        columns = catalogue_columns(rows, width)
        assert all(len(texts) == len(rows) for texts in columns.values())
        wide = [max(map(len, [name, *texts])) for name, texts in columns.items()]
        assert sum(wide) + 2 * (len(wide) - 1) <= width
        assert columns["setting"] == [row["setting"] for row in rows]
    code, out, _ = run(capsys, "figures")
    assert code == 0
    assert all(any(line.startswith(f"{row['figure']} ") for line in out.splitlines()) for row in rows)


@pytest.mark.parametrize(
    ("answer", "terminal", "words", "starts"),
    [
        ("n", True, [], False),
        ("y", True, [], True),
        ("", True, [], False),  # the input ends
        ("", True, ["--yes"], True),
        ("", False, [], True),  # a script is not asked
        ("", True, ["--profile", "quick"], True),
    ],
)
def test_reproduce_says_what_it_takes_and_asks_before_hours(
    tmp_path, capsys, monkeypatch, answer, terminal, words, starts
):
    made = []
    monkeypatch.setattr("unstuck.cli.reproduce._reproduced", lambda *given: made.append(given) or [])
    stream = io.StringIO(f"{answer}\n" if answer else "")
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdin", stream)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    profile = [] if "--profile" in words else ["--profile", "cpu"]
    code = main(["reproduce", "fig3-left", *profile, *words, "--workers", "2", "--out", str(tmp_path / "new")])
    hours = cost_of("fig3-left", "cpu").cpu_hours / 2
    said = capsys.readouterr().err
    assert code != 0  # nothing is made here
    assert bool(made) == starts
    assert (tmp_path / "new").exists() == starts
    if profile:
        assert names(said, "fig3-left", "cpu", 81, f"{hours:.1f}")


def test_the_quick_profile_is_what_a_figure_is_reproduced_in(tmp_path, capsys, monkeypatch):
    made = []
    monkeypatch.setattr("unstuck.cli.reproduce._reproduced", lambda *given: made.append(given) or [])
    main(["reproduce", "fig3-left", "--out", str(tmp_path)])
    assert [given[1] for given in made] == ["quick"]
    assert names(capsys.readouterr().err, "quick")


def test_predict_also_has_the_law_of_our_transformers(capsys):
    """Least squares of logarithms over the committed runs, all of which emerged."""
    table = pd.read_csv(ROOT / "results" / "fig3-left.csv")
    assert (table["status"] == "emerged").all()
    X = np.column_stack([np.ones(len(table)), np.log(table["d"]), np.log(table["T"] / table["B"])])
    found, *_ = np.linalg.lstsq(X, np.log(table["crossing_0.1"]), rcond=None)
    for T, d, B in ((64, 16, 1), (128, 32, 4), (512, 300, 2)):
        _, out, _ = run(capsys, "predict", "--T", T, "--d", d, "--B", B, "--json")
        law = json.loads(out)["transformer"]
        assert law["steps"] == pytest.approx(np.exp(found @ [1, np.log(d), np.log(T / B)]), rel=1e-3)
        assert law["interval"][0] < law["steps"] < law["interval"][1]
        assert bool(law["beyond"]) == (T / B > 128 or d > 64)
    held = []
    for _, row in table.iterrows():
        low, high = TransformerLaw.read().predict(Sizes(row["T"], row["d"], row["B"]))["interval"]
        held.append(low <= row["crossing_0.1"] <= high)
    assert 0.8 < np.mean(held) <= 1  # the interval is said to hold 90% of new runs
    for more in (["--p", "0.1"], ["--threshold", "0.2"]):  # not measured
        _, out, _ = run(capsys, "predict", "--T", 64, "--d", 16, *more, "--json")
        assert json.loads(out)["transformer"] is None


def test_fit_from_the_command_line(capsys, tmp_path):
    rows = ["T,d,plateau_steps,status"]
    rows += [f"{T},{d},{2 * T * d**0.5},emerged" for T in (16, 32, 64) for d in (4, 8)] + ["128,8,,censored"]
    (tmp_path / "runs.csv").write_text("\n".join(rows))
    code, out, err = run(capsys, "fit", tmp_path / "runs.csv", "T + d", "--json")
    law = json.loads(out)
    assert code == 0
    assert law["exponents"] == pytest.approx({"T": 1.0, "d": 0.5})
    assert (law["n"], law["censored"], law["r2"]) == (6, 1, pytest.approx(1))
    assert law["constant"] == pytest.approx(2)
    assert set(law["intervals"]) == {"constant", "T", "d"}
    assert names(err, 1, 7, "steps")  # one run of seven is left out: its column steps is missing
    code, out, _ = run(capsys, "fit", tmp_path / "runs.csv", "T + d")
    assert names(out, "T", "d", 0.5)


def test_figures_lists_every_figure_of_both_papers(capsys):
    code, out, _ = run(capsys, "figures", "--json")
    rows = {row["figure"]: row for row in json.loads(out)["figures"]}
    assert code == 0
    wanted = {"fig1a", "fig1b", "fig1c", "fig2-left", "fig2-right", "fig6", "fig7", "fig8", "fig9", "fig10"}
    wanted |= {"exact-flow", "progress-law", *(f"incremental-fig{i}" for i in range(1, 20)), "incremental-figB"}
    wanted |= {"fig3-left", "fig3-middle", "fig3-right", *(f"fig{i}" for i in range(11, 18))}
    assert wanted <= set(rows)
    assert rows["fig1c"]["available"]
    assert rows["fig9"]["hours"]["paper"] > rows["fig9"]["hours"]["quick"] > 0
    assert rows["progress-law"]["paper"] is None  # ours
    assert all(row["available"] == is_available(name) for name, row in rows.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_own_help(capsys, name):
    function = getattr(import_module(COMMANDS[name].module), name.replace("-", "_"))
    assert function.__doc__.splitlines()[0] == COMMANDS[name].summary
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert COMMANDS[name].summary.split()[-1] in out
    assert "--help" in out


def test_a_figure_that_is_not_there_yet_says_what_it_needs(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("unstuck.papers.figure.is_available", lambda name: name != "fig1c")
    refused_command(capsys, "reproduce", "fig1c", "--out", tmp_path / "none", says=["figure", "'fig1c'", "theory"])


def test_without_arguments_it_says_where_to_start(capsys):
    """Five commands, each of which exists and takes these words."""
    assert main([]) == 0
    text = capsys.readouterr().out
    commands = re.findall(r"^  unstuck (.+?)(?: {2,}|$)", text, re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["predict", "train", "sweep", "fit", "report"]
    assert all(len(line) < 120 for line in text.splitlines())
    for command in commands[:1]:
        assert main(shlex.split(command)) == 0
    for command in commands[1:3]:
        assert main([*shlex.split(command), "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("unstuck re", {"reproduce", "report"}),
        ("unstuck train re", {"regression", "recall"}),
        ("unstuck reproduce fig3-l", {"fig3-large", "fig3-left", "fig3-layernorm"}),
    ],
)
def test_the_shell_completes(typed, offered):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_UNSTUCK_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [Path(sys.executable).parent / "unstuck"], env=os.environ | words, capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == offered


def test_what_figures_cost(capsys):
    """fig11's runs by hand: 6 x batch x multiply-adds a step, and the plateau's law."""
    assert main(["figures", "--cost", "--profile", "paper", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = {row["figure"]: row for row in answer["figures"]}
    steps = operations = gpu = 0
    for run in load("fig11").runs("paper"):
        T, d = run.spec.task.T, run.spec.task.d
        n = min(run.spec.train.max_steps, round(1.1 * 0.76 * d**1.29 * T**0.8) + run.spec.train.after)
        block = 4 * 256 * 256 + 2 * 4 * 256 * 256
        steps += n
        a_step = 6 * 32 * (T * (block + 2 * T * 256) + block + 2 * T * 4 * 256)
        operations += n * a_step
        gpu += n * max(a_step / (0.3 * 19.5e12), 3e-3)  # float32 of an A100, or launching kernels
    assert rows["fig11"]["steps"] == steps
    assert rows["fig11"]["flops"] == pytest.approx(operations, rel=1e-6)
    assert rows["fig11"]["gpu_hours"] == pytest.approx(gpu / 3600, rel=1e-6)
    trained = [row for row in answer["figures"] if row["flops"]]
    assert max(row["flops"] / (3600 * row["gpu_hours"]) for row in trained) < 19.5e12
    assert main(["figures", "--cost", "--profile", "quick"]) == 0
    assert "NVIDIA A100" in " ".join(capsys.readouterr().out.split())
