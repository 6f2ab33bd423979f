"""Specifications: what is asked for is what runs, and nonsense is refused by its name."""

import json

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amounts import examples
from refusals import invalid, refused, refused_command
from unstuck.cli import main
from unstuck.config import load_spec
from unstuck.config.load import build_spec
from unstuck.runner.sweep import expand, run_sweep
from unstuck.store.store import Store
from unstuck.training.loop import Run

NUMBERS = {  # key: the lowest and highest value allowed
    "task.T": (2, 65_536),
    "task.d": (1, 65_536),
    "task.B": (1, 63),
    "model.layers": (1, 1024),
    "model.heads": (1, 1024),
    "model.width": (1, 65_536),
    "train.batch": (1, 1_000_000),
    "train.threads": (1, 1024),
    "train.max_steps": (1, 10**9),
    "train.after": (0, 10**9),
    "optim.lr": (0, 100),
    "seed": (0, 2**32 - 1),
}
WORDS = {
    "task.position",
    "model.activation",
    "model.init",
    "model.read",
    "optim.name",
    "train.device",
    "task.name",
    "model.name",
}


def test_overrides_change_what_they_name():
    spec = load_spec("regression", ["task.T=32", "task.d=8", "optim.lr=3e-4", "model.layer_norm=true", "seed=7"])
    assert (spec.task.T, spec.task.d, spec.optim.lr, spec.model.layer_norm, spec.seed) == (32, 8, 3e-4, True, 7)
    assert build_spec(yaml.safe_load(yaml.safe_dump(spec.as_dict()))) == spec  # what is stored is what ran


def test_the_run_id_is_what_changes_the_dynamics_and_not_the_budget():
    base = load_spec("regression")
    for same in (["train.max_steps=7"], ["train.after=9"], ["train.thresholds=[0.4, 0.1]"], ["train.probe_every=5"]):
        assert load_spec("regression", same).run_id == base.run_id
    others = [["seed=1"], ["task.T=32"], ["optim.lr=2e-4"], ["train.batch=16"], ["train.threads=2"], ["model.heads=2"]]
    assert len({base.run_id, *(load_spec("regression", o).run_id for o in others)}) == 7
    assert base.run_id == load_spec("regression", ["model.layers=2"]).run_id  # a default said aloud is the same run


def test_a_yaml_file_and_a_sweep(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("task: {name: single_location, T: 8, d: 2}\ntrain: {thresholds: 0.2}\n")
    assert load_spec(str(path)).train.thresholds == (0.2,)
    specs = expand(str(path), ["task.T=8,16", "seed=0,1,2", "train.thresholds=[0.4,0.1]"])
    assert [(s.task.T, s.seed) for s in specs] == [(8, 0), (8, 1), (8, 2), (16, 0), (16, 1), (16, 2)]
    assert specs[0].train.thresholds == (0.4, 0.1)


@st.composite
def nonsense(draw):
    """An override that cannot be: unknown key or word, wrong type, a number outside, a bad combination."""
    kind = draw(st.sampled_from(["key", "section", "low", "high", "type", "word", "pair", "form"]))
    if kind == "key":
        section = draw(st.sampled_from(["task", "model", "optim", "train"]))
        return [f"{section}.{draw(st.text('abcxyz', min_size=3, max_size=8))}q={draw(st.integers(0, 9))}"]
    if kind == "section":
        return [f"{draw(st.sampled_from(['tsk', 'modle', 'x', 'trainer', 'seed.x', 'task.T.x', '']))}=3"]
    if kind == "word":
        return [f"{draw(st.sampled_from(sorted(WORDS)))}={draw(st.text('abc', min_size=1, max_size=5))}z"]
    if kind == "pair":
        return draw(st.sampled_from([["task.T=8", "task.B=8"], ["task.feature=false"], ["task.T=4", "task.B=5"]]))
    if kind == "form":
        return [draw(st.sampled_from(["task.T", "=3", "task", "task.T 3", "seed=[1", "seed={a: 1"]))]
    key = draw(st.sampled_from(sorted(NUMBERS)))
    low, high = NUMBERS[key]
    if kind == "type":
        return [f"{key}={draw(st.sampled_from(['abc', '[]', '{}', 'nan', 'null', '[1, 2]', '3.5x', 'true x']))}"]
    if kind == "low":
        return [f"{key}={low - draw(st.integers(1, 10**12))}"]
    return [f"{key}={high + draw(st.integers(1, 10**18))}"]


@given(words=nonsense())
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nonsense_is_refused_with_one_sentence(capsys, words):
    refused_command(capsys, "train", "regression", *words, "--dry-run")


@pytest.mark.parametrize(
    ("word", "field", "value", "nearest"),
    [
        ("task.TT=3", "task.TT", 3, "T"),
        ("optim.name=adma", "optim.name", "adma", "adam"),
        ("modle.heads=2", "override", "modle.heads", "model.heads"),
        ("model.name=transfomer", "model.name", "transfomer", "transformer"),
    ],
)
def test_typos_get_the_nearest_name(word, field, value, nearest):
    with refused(field, value, nearest=nearest):
        load_spec("regression", [word])


@pytest.mark.parametrize(
    ("word", "facts"),
    [
        ("task.feature=false", ["task.feature", "task.position", "random"]),
        ("task.B=64", ["task.B", "task.T", 64]),
    ],
)
def test_settings_that_do_not_go_together_are_both_named(word, facts):
    with invalid(*facts):
        load_spec("regression", [word])


def test_unknown_specs_and_files(tmp_path):
    for source in ("regresion", str(tmp_path / "no.yaml"), str(tmp_path)):
        with refused("SPEC", source):
            load_spec(source)
    (tmp_path / "bad.yaml").write_text("task: [")
    with refused("SPEC", str(tmp_path / "bad.yaml"), allowed=["YAML"]):
        load_spec(str(tmp_path / "bad.yaml"))


def test_a_dry_run_prices_and_runs_nothing(capsys, tmp_path):
    assert main(["sweep", "regression", "task.T=16,32", "--dry-run", "--json", "--out", str(tmp_path / "runs")]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["runs"]) == 2
    assert plan["runs"][1]["hours"] > plan["runs"][0]["hours"] > 0
    assert not (tmp_path / "runs").exists()


def test_files_with_mistakes_are_sentences(tmp_path):
    path = tmp_path / "mine.py"
    for text, check in (
        ("task = (", invalid(path, "SyntaxError")),
        ("import nothing_of_that_name", invalid(path, "ModuleNotFoundError", "line 1", "nothing_of_that_name")),
        ("x = 1", refused("task.name", str(path), allowed=["Task", 0])),
        ("from unstuck.tasks.task import Task\nclass A(Task):\n    T = 3", invalid("A", path, "@config")),
    ):
        path.write_text(text + "\n")
        with check:
            load_spec(str(path))


def test_a_spec_of_somebody_else_cannot_choose_code_to_run(tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for section in ("task", "model", "optim"):
        (tmp_path / "spec.yaml").write_text(f"{section}: {{name: {tmp_path / 'evil.py'}}}")
        with refused(f"{section}.name in {tmp_path / 'spec.yaml'}", str(tmp_path / "evil.py")):
            load_spec(str(tmp_path / "spec.yaml"))
    assert not (tmp_path / "ran").exists()


MODEL = """
import torch
from pydantic.dataclasses import dataclass

WIDTH = 8


@dataclass(frozen=True)
class Flat:
    def build(self, task, rng):
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(task.T * task.inputs, WIDTH), torch.nn.Linear(WIDTH, task.outputs)
        )
"""
OPTIMIZER = """
import torch


class Mine(torch.optim.SGD):
    pass
"""


def test_a_model_and_an_optimiser_from_files_of_ones_own(tmp_path, capsys):
    (tmp_path / "flat.py").write_text(MODEL)
    (tmp_path / "mine.py").write_text(OPTIMIZER)
    words = ["task.T=4", "task.d=2", f"model.name={tmp_path / 'flat.py'}", f"optim.name={tmp_path / 'mine.py'}"]
    assert main(["train", "regression", *words, "train.max_steps=4", "--out", str(tmp_path / "runs"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 4
    first = load_spec("regression", words).run_id
    (tmp_path / "flat.py").write_text(MODEL.replace("WIDTH = 8", "WIDTH = 9"))
    second = load_spec("regression", words).run_id
    (tmp_path / "mine.py").write_text(OPTIMIZER + "\n# changed\n")
    assert len({first, second, load_spec("regression", words).run_id}) == 3  # changed code is another run


def test_settings_that_would_do_nothing_are_refused(tmp_path):
    with invalid("optim.momentum", 0.9, "optim.name", "adam"):
        load_spec("regression", ["optim.momentum=0.9"])
    if not torch.cuda.is_available():
        there = load_spec("regression", ["train.device=cuda"])  # may be meant for another machine
        with refused("train.device", "cuda"):
            Run(there)
        with refused("train.device", "cuda"):
            run_sweep([there], Store(tmp_path))
        assert load_spec("regression", ["train.device=auto"]).run_id == load_spec("regression").run_id


def test_another_model_leaves_the_settings_of_the_old_one_behind():
    spec = load_spec("regression", ["model.name=toy", "task.position=last", "task.feature=false"])
    assert (spec.model_name, spec.task.T) == ("toy", 64)


def test_a_sweep_takes_a_model_from_a_file(tmp_path, capsys):
    (tmp_path / "flat.py").write_text(MODEL)
    words = ["task.T=4", "task.d=2", f"model.name={tmp_path / 'flat.py'}", "train.max_steps=4", "seed=0,1"]
    assert main(["sweep", "regression", *words, "--workers", "1", "--out", str(tmp_path / "runs"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["censored"] == 2
