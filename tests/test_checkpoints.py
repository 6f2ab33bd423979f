"""One curve over checkpoints, in any order; duplicates, final weights and folders that must not be trusted."""

import json
import os
import pickle
import shutil

import pytest
import torch

from refusals import names, refused_command
from unstuck import Watch
from unstuck.attach.checkpoints import find_checkpoints, step_of, watch_checkpoints
from unstuck.cli import main
from unstuck.forecast.sources import read_curve

transformers = pytest.importorskip("transformers")


def save(path, seed):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 32, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes))
    model.save_pretrained(path)
    return model


class Evil:
    def __reduce__(self):
        return (open, ("was-run", "w"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Five checkpoints, two of them copies, and three that cannot be read."""
    root = tmp_path_factory.mktemp("output")
    models = {step: save(root / f"checkpoint-{step}", step) for step in (1000, 200, 30)}
    shutil.copytree(root / "checkpoint-200", root / "checkpoint-250")
    shutil.copytree(root / "checkpoint-1000", root / "checkpoint-0")  # by mistake the last weights
    entries = [{"step": 200, "loss": 2.5}, {"step": 200, "eval_loss": 9.0}, {"step": 1000, "loss": 1.5}]
    (root / "checkpoint-1000" / "trainer_state.json").write_text(
        json.dumps({"global_step": 1000, "log_history": entries})
    )
    pickled = root / "checkpoint-60"
    shutil.copytree(root / "checkpoint-30", pickled)
    (pickled / "model.safetensors").unlink()
    (pickled / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    coded = root / "checkpoint-70"
    save(coded, 70)
    (coded / "config.json").write_text(
        json.dumps({"model_type": "mine", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}})
    )
    (coded / "code.py").write_text("open('was-run', 'w')\n")
    damaged = root / "checkpoint-80"
    shutil.copytree(root / "checkpoint-30", damaged)
    (damaged / "model.safetensors").write_bytes(b"\x00" * 64)
    return root, models


def test_one_curve_in_the_order_of_steps(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    root, models = folder
    assert main(["watch-checkpoints", str(root), "--json", "--out", "saved"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "was-run").exists()
    assert [(row["checkpoint"], row["step"]) for row in found["rows"]] == [
        ("checkpoint-30", 30),
        ("checkpoint-200", 200),
        ("checkpoint-1000", 1000),
    ]
    assert found["duplicates"] == {"checkpoint-250": "checkpoint-200"}
    assert found["final"] == {"checkpoint-0": "checkpoint-1000"}
    assert sorted(found["skipped"]) == ["checkpoint-60", "checkpoint-70", "checkpoint-80"]
    assert [row.get("train_loss") for row in found["rows"]] == [None, 2.5, 1.5]
    for row in found["rows"]:
        watch = Watch(models[row["step"]], vocabulary=32, length=32, tokens=lambda x: {"input_ids": x})
        assert {name: row[name] for name in watch.tried} == pytest.approx(watch.tried, abs=1e-6)
    assert read_curve("saved").steps.tolist() == [30, 200, 1000]


def test_revisions_of_a_cache(folder, tmp_path):
    root, _ = folder
    cache = tmp_path / "models--org--name"
    commits = {"main": "a" * 40, "step1000": "b" * 40, "step200": "c" * 40, "step5": "d" * 40}
    of = {"main": 1000, "step1000": 1000, "step200": 200, "step5": 1000}
    (cache / "refs").mkdir(parents=True)
    for name, commit in commits.items():
        (cache / "refs" / name).write_text(commit)
        (cache / "snapshots" / commit).mkdir(parents=True)
        for file in ("config.json", "model.safetensors"):
            (cache / "snapshots" / commit / file).symlink_to(root / f"checkpoint-{of[name]}" / file)
    assert [c.name for c in find_checkpoints(cache)] == ["step5", "step200", "step1000", "main"]
    series = watch_checkpoints(cache)
    assert series.names == ["step200", "step1000"]
    assert series.final == {"step5": "step1000", "main": "step1000"}
    assert series.duplicates == {}
    assert series.skipped == {}


def test_a_directory_without_checkpoints_is_refused(tmp_path, capsys):
    refused_command(capsys, "watch-checkpoints", tmp_path / "nowhere", says=["DIR"])
    refused_command(capsys, "watch-checkpoints", tmp_path, says=["DIR", "config.json"])


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("global_step500", 500),
        ("iter_0020", 20),
        ("step-3", 3),
        ("ckpt7", 7),
        ("stage2-ingredient1-step40-tokens1B", 40),
    ],
)
def test_names_tell_steps(name, step):
    assert step_of(name) == step


def damaged_copies(root):
    """A whole checkpoint, and others with something wrong each; by name what is said of it."""
    from safetensors.torch import load_file, save_file

    save(root / "checkpoint-1", 1)
    weights = load_file(root / "checkpoint-1/model.safetensors")

    def copy(step, tensors):
        path = shutil.copytree(root / "checkpoint-1", root / f"checkpoint-{step}")
        save_file(tensors, path / "model.safetensors", {"format": "pt"})
        return path

    def weighted(step, factor):
        return copy(step, {name: tensor * factor for name, tensor in weights.items()})

    copy(2, {name: tensor for name, tensor in weights.items() if name != "transformer.h.0.ln_1.weight"})
    for step, change in ((3, {"n_layer": 1_000_000}), (4, {"n_embd": 100_000})):
        path = weighted(step, step)
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | change))
    weighted(5, float("nan"))
    copy(6, {**{name: 6 * tensor for name, tensor in weights.items()}, "evil\x1b[2J": torch.zeros(3)})
    log = [{"step": 7, "loss": 10**400}, {"step": 6, "loss": 2}, {"step": [7], "loss": 1.0}]
    state = {"global_step": 10**400, "log_history": log}
    (weighted(7, 7) / "trainer_state.json").write_text(json.dumps(state))
    weighted("9" * 200, 9)
    return {"2": "transformer.h.0.ln_1.weight", "3": "1000000", "4": "config.json", "9" * 200: "step"}


def test_a_checkpoint_with_something_wrong_leaves_the_others_to_be_measured(tmp_path, capsys):
    wrong = damaged_copies(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(shutil.copytree(tmp_path / "checkpoint-1", tmp_path / "checkpoint-8") / "generation.json")
        wrong["8"] = "generation.json"
    capsys.readouterr()
    assert main(["watch-checkpoints", str(tmp_path), "--json"]) == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    found = json.loads(captured.out)
    assert [row["step"] for row in found["rows"]] == [1, 5, 6, 7]
    assert [row.get("train_loss") for row in found["rows"]] == [None, None, 2, None]
    assert found["skipped"].keys() == {f"checkpoint-{step}" for step in wrong}
    for step, fact in wrong.items():
        assert names(found["skipped"][f"checkpoint-{step}"], fact)
    assert main(["watch-checkpoints", str(tmp_path)]) == 0
