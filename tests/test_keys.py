"""Settings and names on the command line: what `unstuck keys` lists, and words that are understood or explained."""

import json

import pandas as pd
import pytest

from refusals import names, refused, refused_command
from unstuck.cli import as_keys, main
from unstuck.config import load_spec
from unstuck.config.load import shipped
from unstuck.config.settings import settings_of
from unstuck.laws.tables import where
from unstuck.store.table import flatten


@pytest.mark.parametrize("preset", shipped())
def test_every_setting_has_a_meaning_and_says_what_is_allowed(preset):
    spec = load_spec(preset)
    found = {setting.name: setting for setting in settings_of(spec)}
    for section, values in spec.as_dict().items():
        for key in values if isinstance(values, dict) else []:
            assert f"{section}.{key}" in found
    assert [name for name, setting in found.items() if not setting.meaning or not setting.allowed] == []
    assert found["seed"].default == spec.seed


@pytest.mark.parametrize(
    ("key", "allowed", "right", "wrong"),
    [
        ("task.T", "a whole number from 2 to 65,536", ["2", "65536"], ["1", "65537"]),
        ("task.p", "a number from 0 to 1", ["0", "1"], ["-0.1", "1.1"]),
        ("task.B", "a whole number above 0", ["1"], ["0"]),
        ("task.position", "random, fixed or last", ["random", "fixed", "last"], ["first"]),
        ("model.layer_norm", "true or false", ["true", "false"], ["maybe"]),
        ("optim.momentum", "a number at least 0 and below 1", ["0"], ["-0.1", "1"]),
        ("optim.name", "adam, adamw, sgd, or a .py file with your own", ["adamw", "sgd"], ["adamm"]),
        ("train.maps", "a list, each a whole number from 0 to 1,000,000,000", ["[1,2]"], ["[-1]", "[a]"]),
    ],
)
def test_what_is_said_to_be_allowed_is(key, allowed, right, wrong):
    found = {setting.name: setting for setting in settings_of(load_spec("regression"))}
    assert found[key].allowed == allowed
    for value in right:
        load_spec("regression", [f"{key}={value}"])
    for value in wrong:
        with pytest.raises(ValueError, match=key):
            load_spec("regression", [f"{key}={value}"])


def test_the_command_lists_keys_of_a_section_and_of_a_file_of_ones_own(tmp_path, capsys, monkeypatch):
    assert main(["keys", "regression", "--section", "optim", "optim.lr=0.5", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {key["name"] for key in said["keys"]} == {
        f"optim.{name}" for name in ("name", "lr", "momentum", "weight_decay", "clip", "patience")
    }
    assert {key["name"]: key["default"] for key in said["keys"]}["optim.lr"] == 0.5
    refused_command(capsys, "keys", "regression", "--section", "optin", says=["--section", "'optim'"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from unstuck.tasks.task import Task, config\n"
        "@config\nclass Mine(Task):\n    T: int = 8  # tokens\n    #: of a token\n    d: int = 2\n    B: int = 1\n"
    )
    assert main(["keys", "mine.py", "--json"]) == 0
    mine = {key["name"]: key for key in json.loads(capsys.readouterr().out)["keys"]}
    assert [mine[f"task.{name}"]["meaning"] for name in "TdB"] == ["tokens", "of a token", ""]
    assert main(["keys", "regression"]) == 0
    assert "sequence length" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "understood"),
    [
        (["--task.T=16", "--seed", "3"], ["task.T=16", "seed=3"]),
        (["--optim.lr", "1e-3", "--json"], ["optim.lr=1e-3", "--json"]),
        (["task.T=8", "--out", "task.d"], ["task.T=8", "--out", "task.d"]),
        (["--task.T="], ["task.T="]),
    ],
)
def test_keys_that_look_like_options_are_understood(words, understood):
    assert list(as_keys(words)) == understood


def test_a_command_takes_keys_that_look_like_options(capsys):
    assert main(["train", "regression", "--task.T=16", "--task.d", "4", "--dry-run", "--json"]) == 0
    capsys.readouterr()
    refused_command(capsys, "train", "regression", "--task.t=16", says=["task.t", "16"])


def test_a_list_for_one_run_is_one_for_a_sweep(capsys):
    refused_command(capsys, "train", "regression", "task.T=16,32", says=["task.T", "unstuck sweep", "task.T=16,32"])
    refused_command(capsys, "train", "regression", "task.T=x", says=["task.T", "x"])
    says = refused_command(capsys, "train", "markov-minimal", "task.weights=0.7,0.3", says=["task.weights", "list"])
    assert "sweep" not in says  # which would refuse 0.7 alone


# -- one name for a task


def test_a_task_has_the_name_of_its_preset_and_stored_runs_theirs():
    old, new = (load_spec("recall", [f"task.name={name}", "task.d=4"]) for name in ("single_location", "regression"))
    assert old == new
    assert old.run_id == new.run_id
    assert new.as_dict()["task"]["name"] == "single_location"
    same = load_spec("regression", ["task.name=regression", "task.T=8"])
    assert same.run_id == load_spec("regression", ["task.T=8"]).run_id
    assert flatten(new.as_dict())["task"] == "regression"
    with refused("task.name", "regresion", allowed=["regression"], nearest="regression"):
        load_spec("regression", ["task.name=regresion"])


def test_either_name_finds_the_runs_of_a_task():
    table = pd.DataFrame({"task": ["regression", "recall"], "d": [1, 2]})
    for name in ("regression", "single_location"):
        assert where(table, [f"task={name}"])["d"].tolist() == [1]


# -- hints


def test_an_unknown_column_is_answered_with_a_few(tmp_path, capsys):
    many = {f"column{i}": [1.0, 2.0, 3.0] for i in range(40)}
    pd.DataFrame({"plateau_steps": [1.0, 2.0, 3.0], **many}).to_csv(tmp_path / "runs.csv", index=False)
    fit = ["fit", tmp_path / "runs.csv"]
    for words in ([*fit, "colum7"], [*fit, "column1", "--where", "colum7=1"]):
        said = refused_command(capsys, *words, says=["colum7"])
        assert said.count("column") < 15
        assert names(said, "'column7'")


def test_help_shows_no_type_of_a_flag(capsys):
    for words in (["--help"], ["figures", "--help"], ["runs", "--help"]):
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert "--json" in shown or "--version" in shown
        assert "bool" not in shown
