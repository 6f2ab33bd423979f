"""What dashboard and report draw: contrast of colours, levels that curves are read against, heads, tokens of maps."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from stores import a_store
from unstuck.config import load_spec
from unstuck.corpus.tokens import trained
from unstuck.curve import Curve
from unstuck.store.store import RunDirectory, flatten
from unstuck.view.attention_maps import attention_of
from unstuck.view.heads import NUMBERS, heads_of
from unstuck.view.marks import GUESSING, UNIFORM, marks_of, uniform_attention

VIEW = Path(__file__).parents[1] / "src" / "unstuck" / "view"
PALE = {"#fff", "#ffffff"}  # grounds, and what only separates


def contrast(colour):
    """Of a colour on white, by WCAG 2: (1 + 0.05) / (L + 0.05)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def test_contrast_of_known_colours():
    assert contrast("#000000") == pytest.approx(21)
    assert contrast("#777777") == pytest.approx(4.48, abs=0.01)


def colours():
    return (VIEW / "scripts" / "colours.js").read_text()


def test_every_colour_of_a_line_or_a_word_is_seen_on_white():
    found = set(re.findall(r"#[0-9a-f]{6}", colours()))
    assert len(found) > 12
    assert {c: round(contrast(c), 2) for c in found if contrast(c) < 3} == {}
    styles = (VIEW / "dashboard" / "static" / "app.css").read_text() + (
        VIEW / "report" / "templates" / "report.html"
    ).read_text()
    words = set(re.findall(r"(?<![-\w])color: (#[0-9a-f]{6})", styles)) | set(
        re.findall(r"--(?:ink|soft|blue|exit|agrees|differs|new): (#[0-9a-f]{6})", styles)
    )
    assert len(words) > 4
    assert {c: round(contrast(c), 2) for c in words if contrast(c) < 4.5} == {}


def test_between_two_colours_of_the_scale_none_is_paler():
    """Each channel goes straight from one colour to the next, so luminance is convex and largest at an end."""
    scale = re.findall(r"#[0-9a-f]{6}", re.search(r"SCALE = \[(.*?)\]", colours())[1])
    for a, b in pairwise(scale):
        for t in np.linspace(0, 1, 11):
            rgb = [round(int(a[i : i + 2], 16) * (1 - t) + int(b[i : i + 2], 16) * t) for i in (1, 3, 5)]
            assert contrast("#" + "".join(f"{c:02x}" for c in rgb)) >= 3


def test_no_script_has_a_colour_of_its_own():
    """One meaning a colour: scripts take them from colours.js, but for white and the greys of grids and axes."""
    for script in [*VIEW.rglob("*.js")]:
        if script.name not in ("colours.js", "axes.js"):
            assert set(re.findall(r"#[0-9a-fA-F]{3,6}\b", script.read_text())) <= PALE, script.name


# -- levels


@pytest.mark.parametrize(
    ("preset", "words"),
    [("recall", ["task.pairs=5"]), ("mqar", ["task.pairs=3", "task.T=32"]), ("induction-heads", ["task.tokens=7"])],
)
def test_guessing_is_what_the_task_says(preset, words):
    spec = load_spec(preset, words)
    row = flatten(spec.as_dict()) | {"threshold": 0.9}
    assert GUESSING[row["task"]](row) == spec.task.chance
    curve = Curve(pd.DataFrame({"step": [0, 1], "test_accuracy": [0.1, 0.2], "test_loss": [1.0, 0.9]}))
    threshold, guess = marks_of(row, curve)
    assert (threshold["measure"], threshold["y"]) == ("test_accuracy", 0.9)
    assert guess["y"] == spec.task.chance


@pytest.mark.parametrize(
    ("preset", "words"),
    [("regression", ["task.T=12", "task.B=3"]), ("recall", ["task.pairs=5"]), ("recall", ["task.joined=true"])],
)
def test_uniform_attention_is_the_share_of_relevant_positions(preset, words):
    """Counted in drawn batches."""
    spec = load_spec(preset, words)
    rng = torch.Generator().manual_seed(0)
    relevant = spec.task.sample(400, rng, spec.task.world(rng)).relevant
    row = flatten(spec.as_dict())
    assert UNIFORM[row["task"]](row) == pytest.approx(relevant.float().mean().item(), rel=0.02)
    assert uniform_attention(row, "attention")["y"] == UNIFORM[row["task"]](row)


@pytest.mark.parametrize(
    "row",
    [
        *({}, {"task": "recall"}, {"task": "recall", "pairs": 0}, {"task": "recall", "pairs": "x"}, {"task": ["a"]}),
        {"task": "recall", "pairs": float("nan"), "B": 1, "threshold": "0.1", "thresholds": ["x"]},
    ],
)
def test_no_level_of_a_damaged_row(row):
    curve = Curve(pd.DataFrame({"step": [0], "test_accuracy": [0.1]}))
    assert marks_of(row, curve) == []
    assert uniform_attention(row, "attention") is None
    assert uniform_attention(row, "row_entropy")["y"] == 1


# -- heads


def test_heads_are_told_in_few_numbers():
    """The first and the last row are there, the most telling measure comes first, and gaps are null."""
    rows, heads = 5000, 30
    table = {"step": np.arange(rows)} | {f"row_entropy_0_{h}": np.linspace(1, 0.5, rows) for h in range(heads)}
    table |= {f"attn_2_{h}": np.where(np.arange(rows) % 2, np.nan, h) for h in range(heads)}
    told = heads_of(Curve(pd.DataFrame(table)), {}, "", 10**6)
    assert list(told["measures"]) == ["attention", "row_entropy"]
    assert told["heads"] == [[2, h] for h in range(heads)]
    assert (told["step"][0], told["step"][-1]) == (0, rows - 1)
    assert sum(map(len, told["values"])) <= NUMBERS
    assert set(told["values"][7]) == {7.0, None}
    other = heads_of(Curve(pd.DataFrame(table)), {}, "row_entropy", 11)
    assert other["values"][0] == pytest.approx([1 - k / 20 for k in range(11)], abs=1e-3)
    assert heads_of(Curve(pd.DataFrame({"step": [1], "loss": [1.0]})), {}, "attention", 9)["heads"] == []


# -- maps


def with_maps(directory, tokens):
    size = len(tokens)
    row, column = (x.ravel() for x in np.indices((size, size)))
    table = {"step": 3, "layer": 1, "head": 2, "row": row, "column": column, "token": np.array(tokens)[column]}
    directory.write_maps(pd.DataFrame(table | {"relevant": column == 1, "weight": (row + column) / (2 * size)}))
    return attention_of([directory])[0][0]


def test_maps_name_their_tokens(tmp_path):
    directory = RunDirectory(a_store(tmp_path / "runs", 1) / ("0" * 16))
    found = with_maps(directory, [7, 9, 7])
    assert (found["heads"], found["steps"], found["size"]) == ([[1, 2]], [3], 3)
    assert found["tokens"] == ["7", "9", "7"]
    assert found["relevant"] == [False, True, False]
    assert with_maps(directory, [0, 1, 2])["tokens"] == ["x1", "x2", "x3"]  # positions: tokens are vectors


def test_maps_of_a_language_model_are_on_its_words(tmp_path):
    """By the tokeniser in the store's cache; decoded as the tokeniser itself does."""
    directory = RunDirectory(a_store(tmp_path / "runs", 1) / ("0" * 16))
    spec = directory.spec()
    spec["task"] = {"name": "text", "corpus": "mine", "vocabulary": 270}
    directory._write("spec.yaml", json.dumps(spec).encode())
    text = "the cat sat on the mat – the cät sat on the hat.\n" * 40
    tokenizer = trained(text, 270)
    indices = tokenizer.encode("the cat sat on the mat").ids
    assert with_maps(directory, indices)["tokens"] == [str(i) for i in indices]  # without a tokeniser
    cache = directory.path.parent / ".cache"
    cache.mkdir()
    (cache / "mine-abc-270.tokenizer.json").write_text(tokenizer.to_str())
    words = [tokenizer.decode([i]) for i in indices]
    assert with_maps(directory, indices)["tokens"] == ["␣" if word == " " else word for word in words]
    (cache / "mine-abc-270.tokenizer.json").write_text('{"model": {"vocab": []}}')
    assert with_maps(directory, indices)["tokens"] == [str(i) for i in indices]
    (cache / "mine-abc-270.tokenizer.json").unlink()
    (cache / "mine-abc-270.tokenizer.json").symlink_to("/dev/zero")
    assert with_maps(directory, indices)["tokens"] == [str(i) for i in indices]
    elsewhere = tmp_path / "elsewhere"
    cache.rename(elsewhere)
    (elsewhere / "mine-abc-270.tokenizer.json").unlink()
    (elsewhere / "mine-abc-270.tokenizer.json").write_text(tokenizer.to_str())
    cache.symlink_to(elsewhere)
    assert with_maps(directory, indices)["tokens"] == [str(i) for i in indices]
    spec["task"]["vocabulary"] = 256
    directory._write("spec.yaml", json.dumps(spec).encode())
    assert with_maps(directory, list(b"a \n"))["tokens"] == ["a", "␣", "⏎"]
