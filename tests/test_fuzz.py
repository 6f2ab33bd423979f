"""Random specifications, odd stores and damaged files: a sentence or an answer, never a traceback.

Each strategy is bounded, so that all take some seconds; `make test-all` draws 25 times as many.
"""

import copy
import json
import math
import random
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from logs import wandb_texts
from stores import a_store
from unstuck.cli import main
from unstuck.config.load import build_spec, load_spec, parse_overrides
from unstuck.config.plain_yaml import NotPlain, plain_yaml
from unstuck.errors import BadInput
from unstuck.forecast import Forecaster
from unstuck.forecast.sources import read_curve
from unstuck.laws.formula import parse
from unstuck.laws.tables import where
from unstuck.store.shards import archive_runs
from unstuck.store.store import Damaged, Store
from unstuck.view.dashboard.app import make_app
from unstuck.view.report.page import write_report

FEW, MANY = 40, 1_000
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

nasty = st.sampled_from(
    [
        *(
            "",
            " ",
            "\0",
            "\x1b[2J",
            "[/b]",
            "\ud800",
            "../..",
            "~",
            "null",
            "nan",
            "inf",
            "-inf",
            "1e999",
            "0x10",
            "1_0",
        ),
        *("yes", "2001-02-30", "[", "{", "&a", "*a", "!!python/object:os.system", "<<", "?", "|", "%", "9" * 4_400),
        *("-" * 495 + "d", "[" * 3_000, "{" * 3_000, "d=" + " " * 5_000, "\u202e", "a" * 100_000, "é", "١"),
    ]
)
text = st.one_of(nasty, st.text(max_size=30))
scalars = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), text),
    st.sampled_from([10**400, -(10**400), 2**63, -1, 0, 1e308, -0.0, math.nan, math.inf]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3)),
    max_leaves=8,
)
sections = st.sampled_from(["task", "model", "optim", "train", "schedule", "seed", "other", ""])
keys = st.one_of(
    st.sampled_from(
        ["name", "T", "d", "B", "p", "lr", "layers", "heads", "width", "batch", "thresholds", "maps", "compare"]
    ),
    text,
)
overrides = st.builds(lambda section, key, value: f"{section}.{key}={value}", sections, keys, text)
formulas = st.one_of(text, st.text(alphabet="dTB+-*/()., sqrtlog0123456789e\n", max_size=60))


def accepted(call, *arguments):
    """What a call returns; None where it refuses."""
    try:
        return call(*arguments)
    except (BadInput, NotPlain):
        return None


@pytest.fixture(params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def examples(request):
    """How many examples to try."""
    return request.param


def tried(examples, check, **strategies):
    settings(max_examples=examples, deadline=None, suppress_health_check=QUIET, database=None)(
        given(**strategies)(check)
    )()


# -- random specifications


def test_random_overrides(examples):
    def check(words):
        spec = accepted(load_spec, "regression", words)
        assert spec is None or spec.run_id

    tried(examples, check, words=st.lists(overrides, max_size=3))


def test_random_nested_values(examples):
    def check(raw):
        spec = accepted(build_spec, raw)
        assert spec is None or spec.run_id

    tried(examples, check, raw=st.dictionaries(sections, st.one_of(values, st.dictionaries(keys, values, max_size=3))))


def test_random_texts_as_yaml_overrides_formulas_and_conditions(examples):
    table = pd.DataFrame({"d": [1.0, 2.0], "word": ["a", "b"]})

    def check(text, formula):
        accepted(plain_yaml, text)
        accepted(parse_overrides, [text])
        accepted(where, table, [text])
        for term in accepted(parse, formula) or ():
            accepted(term.evaluate, table)

    tried(examples, check, text=text, formula=formulas)


# -- logs of other trainers

log_keys = st.one_of(st.sampled_from(["step", "global_step", "_step", "loss", "attn_0_0", "train/loss", "epoch"]), text)
cells = st.dictionaries(log_keys, st.one_of(scalars, values), max_size=4)
LONGEST = 9_000  # characters of a value in JSON: a piece of a .wandb file has at most 32 kB


def looked_at(path, content):
    """A forecast of a file, or a refusal."""
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curve = accepted(read_curve, path)
        if curve is not None:
            accepted(Forecaster().predict, curve)


def test_random_states_of_a_trainer(tmp_path, examples):
    usual = [{"step": i, "loss": 2.0 - i / 100, "attn_0_0": i / 100} for i in range(20)]

    def check(rows):
        looked_at(tmp_path / "trainer_state.json", json.dumps({"log_history": [*usual, *rows]}).encode())

    tried(examples, check, rows=st.lists(cells, max_size=4))


def test_random_logs_of_weights_and_biases(tmp_path, examples):
    usual = [{"_step": str(i), "loss": "2.0"} for i in range(20)]

    def check(rows, seed):
        cut = [{key[:99].encode(errors="replace"): json.dumps(v)[:LONGEST] for key, v in row.items()} for row in rows]
        content = wandb_texts([*usual, *cut])
        looked_at(tmp_path / "run-a.wandb", content)
        looked_at(tmp_path / "run-a.wandb", damaged(content, random.Random(seed)))

    tried(examples, check, rows=st.lists(cells, max_size=3), seed=st.integers(0, 1_000))


# -- odd stores


def changed(value, rng):
    """A plain value with one part of it replaced, added or removed."""
    odd = [
        None,
        True,
        -1,
        10**30,
        1e400,
        math.nan,
        "",
        "\x1b[2J[/b]",
        "\ud800",
        [],
        {},
        [[]] * 50,
        {"a": {"b": 1}},
        "x" * 9_999,
    ]
    value = copy.deepcopy(value)
    place = value
    while isinstance(place, dict) and place:
        key = rng.choice(list(place))
        if isinstance(place[key], dict) and rng.random() < 0.7:
            place = place[key]
        elif rng.random() < 0.2:
            del place[key]
            break
        else:
            place[rng.choice([key, "extra", "\x1b"])] = rng.choice(odd)
            break
    return value


def damaged(content, rng):
    """Bytes with some flipped, cut, doubled or put in front."""
    content, kind = bytearray(content), rng.randrange(5)
    if kind == 0 and content:
        for _ in range(rng.randrange(1, 9)):
            content[rng.randrange(len(content))] = rng.randrange(256)
    elif kind == 1:
        content = content[: rng.randrange(len(content) + 1)]
    elif kind == 2:
        content += content[rng.randrange(len(content) + 1) :]
    elif kind == 3:
        content = bytes(rng.randrange(256) for _ in range(9)) + content
    else:
        content = b""
    return bytes(content)


def odd_table(path, rng):
    """A curve or map that no loop would write."""
    frames = [
        pd.DataFrame({"step": [0, 1, 2], "test_loss": ["a", None, "\x1b"]}),
        pd.DataFrame({"step": [math.nan, -5, math.inf], "attn_0_0": [1, 2, 3]}),
        pd.DataFrame({"step": [1, 1, 0], "attn_99999_0": [0.1, math.nan, -1], "attn_0_1": [1e308, -1e308, 0]}),
        pd.DataFrame({"step": pd.to_datetime(["2001-01-01"]), "test_loss": [1]}),
        pd.DataFrame({"step": [[1, 2]], "test_loss": [1]}),
        pd.DataFrame({name: [2**62] for name in ("step", "layer", "head", "row", "column", "weight")}),
        pd.DataFrame({"step": np.arange(50), "train_loss": np.nan}, index=pd.Index(range(50), name="step_")),
        pd.DataFrame(columns=["step"]),
        pd.DataFrame({"a": [1]}),
    ]
    rng.choice(frames).to_parquet(path)


def spoil(store, rng):
    """Change one file of a store."""
    path = rng.choice(sorted(p for p in store.rglob("*") if p.is_file() and p.name != ".lock"))
    if path.suffix == ".parquet" and rng.random() < 0.5:
        odd_table(path.with_name(rng.choice(["curve.parquet", "maps.parquet"])), rng)
    elif path.suffix in (".json", ".yaml") and rng.random() < 0.6:
        path.write_text(json.dumps(changed(json.loads(path.read_text()), rng)))
    else:
        path.write_bytes(damaged(path.read_bytes(), rng))


def look_at_all(store, out, capsys):
    """Read a store in every way; each way ends with an answer or a sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        for run in Store(store):
            run.row(), run.maps(), run.has_curve()
            if (curve := run.curve()) is not None and len(curve) > 1:
                accepted(Forecaster().predict, curve)
            accepted(read_curve, run.path)
        accepted(write_report, store, out)
        client = TestClient(make_app(store), base_url="http://127.0.0.1")
        assert client.get("/api/live").status_code == 200
        runs = client.get("/api/runs")
        assert runs.status_code == 200, runs.text
        for run in Store(store):
            for path in ("curve", "attention", "heads"):
                assert client.get(f"/api/{path}", params={"run": run.path.name}).status_code in (200, 400)
        assert client.get("/api/law", params={"formula": "d"}).status_code in (200, 400)
    for words in (["runs", str(store)], ["fit", str(store), "d"]):
        assert main(words) in (0, 2)
        captured = capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err


FOUND = [63]  # seeds whose stores were not read once
SLOW = pytest.param(range(150), marks=pytest.mark.slow, id="150")


@pytest.mark.parametrize("seeds", [pytest.param([*FOUND, *range(6)], id="6"), SLOW])
def test_odd_stores_and_damaged_files(tmp_path, capsys, seeds):
    whole = a_store(tmp_path / "whole", 6, rows=12)
    archive_runs([whole / f"{i:016x}" for i in range(2)], whole / "archive")
    for i in range(2):
        shutil.rmtree(whole / f"{i:016x}")
    for seed in seeds:
        rng = random.Random(seed)
        store = tmp_path / f"store{seed}"
        shutil.copytree(whole, store)
        for _ in range(rng.randrange(1, 4)):
            try:
                spoil(store, rng)
            except ValueError:  # a file that was damaged before is no JSON
                continue
        try:
            look_at_all(store, tmp_path / "report.html", capsys)
        except Exception as e:
            raise AssertionError(f"the store of seed {seed}") from e
        shutil.rmtree(store)


def test_damage_is_named(tmp_path):
    store = a_store(tmp_path, 2)
    (store / f"{0:016x}" / "curve.parquet").write_bytes(b"PAR1" + bytes(20))
    with pytest.warns(Damaged, match=f"{0:016x}"):
        assert Store(store).run(f"{0:016x}").curve() is None
