"""The dashboard's server: what it answers, and what it refuses."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

from dashboards import Server
from refusals import names, refused, refused_command
from stores import a_store, mixed_store
from unstuck.cli import main
from unstuck.curve import Curve
from unstuck.forecast.forecaster import Forecaster
from unstuck.store.index import RunIndex
from unstuck.store.store import RunDirectory
from unstuck.theory import Flow, linearised
from unstuck.view.dashboard.app import make_app, scripts
from unstuck.view.report.page import write_report

ROOT = Path(__file__).parents[1]


@pytest.fixture
def store(tmp_path):
    return a_store(tmp_path / "runs", 12)


@pytest.fixture
def client(store):
    return TestClient(make_app(store), base_url="http://127.0.0.1")


def test_the_page_loads_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "http://" not in page.text
    assert "https://" not in page.text
    needed, asked = ["/app.js", "/app.css", "/plotly.js"], set()
    while needed:  # with what the modules import
        asked.add(path := needed.pop())
        found = client.get(path)
        assert found.status_code == 200
        assert len(found.text) > 500
        imported = re.findall(r'^import .* from "\./(.*)";$', found.text, re.MULTILINE) if path != "/plotly.js" else []
        needed += [f"/{name}" for name in imported if f"/{name}" not in {*asked, *needed}]
    assert asked == {f"/{script.name}" for script in scripts()} | {"/app.css", "/plotly.js"}


@pytest.mark.parametrize(
    "words", [{"T": 512, "d": 64}, {"T": 64, "d": 16, "B": 8, "flow": "reduced"}, {"T": 99, "d": 5, "p": 0.3}]
)
def test_theory_says_what_predict_says(client, capsys, words):
    found = client.get("/api/theory", params=words).json()
    assert main([*found["command"].split()[1:], "--json"]) == 0
    assert found["plateau"] == json.loads(capsys.readouterr().out)["plateau"]
    assert len(found["t"]) == len(found["flows"]["exact"]["loss"]) == len(found["linearised"])
    setting = {"T": 512, "d": 64, "B": 1, "p": 0.0} | {k: v for k, v in words.items() if k != "flow"}
    for kind in ("exact", "reduced"):
        flow = Flow(**setting, kind=kind)
        path = flow.trajectory(times=np.array(found["t"]))
        for name, values in (("loss", path.test_loss), ("w", path.w), ("alpha", path.alpha)):
            assert found["flows"][kind][name] == pytest.approx(values, rel=1e-3, abs=3e-3)
    early = linearised(Flow(**setting, kind=words.get("flow", "exact")), np.array(found["t"][:40])).loss
    assert found["linearised"][:40] == pytest.approx(early, rel=1e-4)


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("/api/theory?T=1&d=64", "T", 1),
        ("/api/theory?T=abc&d=64", "T", "abc"),
        ("/api/theory?T=64&d=64&p=2", "p", 2.0),
        ("/api/theory?T=64&d=64&flow=other", "flow", "other"),
        ("/api/curve?run=../../etc", "run", "../../etc"),
        ("/api/curve?run=..", "run", ".."),
        ("/api/curve?run=", "run", ""),
        ("/api/attention?run=%2Fetc%2Fpasswd", "run", "/etc/passwd"),
        ("/api/heads?run=..&measure=attention", "run", ".."),
        ("/api/law?formula=import+os", "formula", "import os"),
        ("/api/law?formula=__import__('os')", "formula", "__import__('os')"),
        ("/api/law?formula=d&where=nonsense", "where", "nonsense"),
    ],
)
def test_bad_requests_are_answered_in_a_sentence(client, path, field, value):
    found = client.get(path)
    assert found.status_code == 400
    assert names(found.json()["error"], field, repr(value))


def test_runs_curves_and_laws(client, store):
    table = client.get("/api/runs").json()
    assert len(table["rows"]) == 12
    run = table["rows"][0][0]
    curve = client.get("/api/curve", params={"run": run}).json()
    assert len(curve["curve"]["step"]) == 30
    law = client.get("/api/law", params={"formula": "d + T", "d": 64, "T": 64}).json()
    assert [round(x[1], 3) for x in law["terms"]] == [1.0, 0.5]
    assert law["prediction"]["plateau"] == pytest.approx(3 * 64 * 8, rel=1e-2)
    assert law["prediction"]["beyond"]
    inside = client.get("/api/law", params={"formula": "d + T", "d": 8, "T": 16}).json()
    assert not inside["prediction"]["beyond"]
    missing = client.get("/api/law", params={"formula": "d + T", "d": 8})
    assert missing.status_code == 400
    assert names(missing.json()["error"], "predict", "d", "T")


def test_forecasts_of_runs_under_way(client, store):
    """The committed example of a stuck run, as one that is running: a sentence, and a zone; none once it is over."""
    directory = RunDirectory(store / ("0" * 16))
    directory.write_curve(pd.read_csv(ROOT / "examples" / "stuck-watched.csv"))
    directory.write_status({"state": "running", "step": 892, "seconds": 8920.0})
    with directory.lock():
        (running,) = client.get("/api/live").json()["running"]
        zone = client.get("/api/curve", params={"run": "0" * 16}).json()["expected"]
    assert running["step"] == 892
    assert running["elapsed"] == pytest.approx(892 / zone["step"], rel=1e-4)
    assert running["settings"].items() >= {"task": "regression", "d": 4, "T": 8}.items()
    assert running["exit"]["seconds"] == pytest.approx([10 * (zone[end] - 892) for end in ("low", "high")], rel=1e-4)
    assert 892 < zone["low"] < zone["step"] < zone["high"]
    for said in (running["forecast"], zone["label"]):
        assert names(said, f"{zone['low']:,.0f}", f"{zone['high']:,.0f}")
        assert names(said, f"{(zone['high'] - 892) * 10 / 3600:.1f} h")
    over = next(row[0] for row in client.get("/api/runs").json()["rows"] if "emerged" in row)
    assert client.get("/api/curve", params={"run": over}).json()["expected"] is None


def test_what_changes_is_seen_and_nothing_is_written(client, store):
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    assert len(client.get("/api/runs").json()["rows"]) == 12
    client.get("/api/curve", params={"run": "0" * 16})
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before
    (new,) = (RunDirectory(store / ("f" * 16)),)
    os.rename(store / ("0" * 16), new.path)
    assert "f" * 16 in {row[0] for row in client.get("/api/runs").json()["rows"]}


def test_a_link_out_of_the_directory_leads_nowhere(client, store, tmp_path):
    elsewhere = a_store(tmp_path / "elsewhere", 1)
    (store / "link").symlink_to(elsewhere / ("0" * 16))
    assert client.get("/api/curve?run=link").status_code == 400
    assert "link" not in {row[0] for row in client.get("/api/runs").json()["rows"]}
    run = store / ("0" * 16)
    for name in ("curve.parquet", "spec.yaml", "status.json"):
        (run / name).unlink()
        (run / name).symlink_to(elsewhere / ("0" * 16) / name)
    assert client.get("/api/curve?run=" + "0" * 16).json()["curve"] == {}
    assert "0" * 16 not in {row[0] for row in client.get("/api/runs").json()["rows"]}


def test_a_spec_cannot_give_a_run_another_name(client, store):
    directory = RunDirectory(store / ("0" * 16))
    spec = directory.spec()
    spec["task"]["run_id"] = "../elsewhere"
    (directory.path / "spec.yaml").write_text(json.dumps(spec))
    assert "0" * 16 in {row[0] for row in client.get("/api/runs").json()["rows"]}


@pytest.mark.filterwarnings("ignore::unstuck.store.store.Damaged")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("status.json", b'{"state": "running", "step": null}'),
        ("status.json", b'{"state": "running", "step": "abc"}'),
        ("status.json", b'{"state": "running", "step": 1e400}'),
        ("status.json", b'{"state": "finished", "step": 1, "result": {"status": "emerged", "plateau_steps": []}}'),
        ("spec.yaml", b"task: {name: x, d: 1" + b"0" * 400 + b"}\nmodel: {}\noptim: {}\ntrain: {}"),
        ("spec.yaml", b"task: {name: x}\nmodel: {}\noptim: {}\ntrain: {}\n2020-01-01: {name: x}"),
        ("spec.yaml", b"\xff\xfe"),
        ("curve.parquet", b"PAR1"),
        ("curve.parquet", pd.DataFrame({"test_loss": [1.0]})),
        ("curve.parquet", pd.DataFrame({"step": ["a", "b"], "test_loss": ["x", None], "attn_0_0": ["y", "z"]})),
        ("maps.parquet", pd.DataFrame({"step": [0]})),
        ("maps.parquet", pd.DataFrame({c: [-1.5] for c in ("step", "layer", "head", "row", "column", "weight")})),
    ],
)
def test_a_damaged_run_leaves_the_others_to_be_seen(client, store, tmp_path, name, content):
    path = store / ("0" * 16) / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content.to_parquet(path)
    assert len(client.get("/api/runs").json()["rows"]) >= 11
    for api in ("curve", "attention", "heads"):
        assert client.get(f"/api/{api}?run=" + "0" * 16).status_code == 200
    assert client.get("/api/law?formula=d%2BT").status_code == 200
    assert write_report(store, tmp_path / "r.html").stat().st_size > 1_000_000


def test_another_host_needs_the_token(store):
    client = TestClient(make_app(store, host="0.0.0.0", token="secret"), base_url="http://10.0.0.7")
    assert client.get("/").status_code == 403
    assert client.get("/api/runs?token=guess").status_code == 403
    given = client.get("/?token=secret", follow_redirects=False).headers["set-cookie"].lower()
    assert "httponly" in given
    assert "samesite=lax" in given
    assert client.get("/?token=secret").status_code == 200  # and keeps it in a cookie
    assert client.get("/api/runs").status_code == 200


def test_a_page_of_another_site_cannot_ask(store):
    rebound = TestClient(make_app(store), base_url="http://evil.example")
    assert rebound.get("/api/runs").status_code == 400


def test_names_are_data(client, tmp_path):
    evil = "<script>alert(1)</script>"
    there = TestClient(make_app(a_store(tmp_path / "evil", 4, name=evil)), base_url="http://127.0.0.1")
    answer = there.get("/api/runs")
    assert evil in answer.json()["rows"][0] or "task" not in answer.json()["columns"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["a" * 64, "ü" * 64, "nowhere.invalid"])
def test_a_host_that_can_be_none_is_refused(store, capsys, host):
    refused_command(capsys, "serve", store, "--host", host, "--port", "0", says=["--host"])


def test_curves_beyond_all_bounds_are_shown_without_a_warning(client):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert client.get("/api/theory?T=1000000&d=1000000&B=1&p=0.9999999").status_code == 200


def test_a_directory_that_is_not_there():
    with refused("directory", "nowhere"):
        make_app(Path("nowhere"))
    assert main(["serve", "nowhere"]) == 2


def test_a_hundred_page_loads_at_once(store):
    """Each with what the page asks for: script, style, plotly, theory, runs, a curve and a law."""
    paths = ["/", "/app.css", "/colours.js", "/app.js", "/plotly.js", "/api/theory?T=64&d=16", "/api/runs"]
    paths += ["/api/live", "/api/heads?run=" + "0" * 16]
    paths += ["/api/curve?run=" + "0" * 16, "/api/law?formula=d%2BT"]

    def load(address):  # with connections of its own, as a browser has: a shared pool may close one that is in use
        with httpx.Client(timeout=120, verify=False) as client:
            return [client.get(address + path) for path in paths]

    with Server(store) as address, ThreadPoolExecutor(100) as pool:
        pages = list(pool.map(load, [address] * 100))
    assert {answer.status_code for page in pages for answer in page} == {200}
    for answers in zip(*pages, strict=True):
        assert len({answer.content for answer in answers}) == 1  # all got the same


# -- the runs, page by page and by what has changed


def test_after_the_first_answer_only_what_has_changed_is_told(client, store):
    first = client.get("/api/runs").json()
    assert first["first"]
    assert first["total"] == 12
    change = RunDirectory(store / f"{3:016x}")
    change.write_status(change.status() | {"result": change.status()["result"] | {"steps": 4321}})
    RunDirectory(store / f"{4:016x}").path.rename(store / "moved")
    later = client.get("/api/runs", params={"since": first["version"]}).json()
    assert "first" not in later
    assert later["columns"] == first["columns"]
    assert later["removed"] == [f"{4:016x}"]
    told = {row[0]: row for row in later["rows"]}
    assert told[f"{3:016x}"][first["columns"].index("steps")] == 4321
    assert {f"{3:016x}", "moved"} <= set(told)
    known = {row[0]: row for row in first["rows"]} | told
    assert sorted(known.values()) != sorted(row for row in first["rows"])
    known.pop(f"{4:016x}")
    assert sorted(known.values()) == client.get("/api/runs").json()["rows"]


@pytest.mark.parametrize(
    "since", ["", "1", "x.1", "0" * 5000, "{name}.0", "{name}.99", "{name}.-1", "{name}.1e3", "{name}"]
)
def test_a_version_that_is_not_ours_gets_the_first_rows(client, since):
    first = client.get("/api/runs").json()
    again = client.get("/api/runs", params={"since": since.format(name=first["version"].partition(".")[0])}).json()
    assert again == first


def test_pages_follow_one_another_while_runs_come_and_go(client, store, monkeypatch):
    monkeypatch.setattr("unstuck.view.dashboard.runs.PAGE", 5)
    found = client.get("/api/runs").json()
    rows, total = found["rows"], found["total"]
    assert (len(rows), total) == (5, 12)
    RunDirectory(store / f"{0:016x}").path.rename(store / "zz")  # before the page that comes next
    while page := client.get("/api/runs", params={"after": rows[-1][0]}).json()["rows"]:
        rows += page
    assert [row[0] for row in rows] == [*(f"{i:016x}" for i in range(12)), "zz"]
    change = client.get("/api/runs", params={"since": found["version"]}).json()
    assert change["removed"] == [f"{0:016x}"]


def test_one_slow_look_at_the_directory_holds_up_no_other_request(client, monkeypatch):
    """While one request reads the store, others get what is known; theory does not wait at all."""
    first = client.get("/api/runs").json()
    entered, go_on = threading.Event(), threading.Event()
    look = RunIndex.look

    def slow(self):
        entered.set()
        assert go_on.wait(60)
        return look(self)

    monkeypatch.setattr(RunIndex, "look", slow)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.get, "/api/runs")
        assert entered.wait(60)
        monkeypatch.setattr(RunIndex, "look", look)
        assert client.get("/api/runs").json()["version"] == first["version"]
        assert client.get("/api/theory?T=64&d=16").status_code == 200
        assert client.get("/api/curve?run=" + "0" * 16).status_code == 200
        assert not waiting.done()
        go_on.set()
        assert waiting.result().status_code == 200


def test_a_large_store_is_given_a_rest(client, store, monkeypatch):
    """Looks that are slow are rare; when the rest is over, what has changed is seen."""
    monkeypatch.setattr("unstuck.view.dashboard.runs.SLOW", 0.0)
    monkeypatch.setattr("unstuck.view.dashboard.runs.REST", 10**9)
    now = [100.0]
    monkeypatch.setattr("unstuck.view.dashboard.runs.time.monotonic", lambda: now[0])
    first = client.get("/api/runs").json()
    RunDirectory(store / f"{0:016x}").path.rename(store / "zz")
    assert client.get("/api/runs").json() == first
    now[0] += 5.1
    assert client.get("/api/runs").json()["rows"][-1][0] == "zz"


def test_a_forecast_is_made_again_only_when_the_curve_has_changed(client, store, monkeypatch):
    made = []
    predict = Forecaster.predict
    monkeypatch.setattr(Forecaster, "predict", lambda self, curve: made.append(len(curve)) or predict(self, curve))
    directory = RunDirectory(store / ("0" * 16))
    curve = pd.read_csv(ROOT / "examples" / "stuck-watched.csv")
    directory.write_curve(curve)
    directory.write_status({"state": "running", "step": 892})
    with directory.lock():
        answers = [client.get("/api/live").json()["running"] for _ in range(3)]
        assert made == [len(curve)]
        assert answers[0] == answers[1] == answers[2]
        directory.write_curve(curve[:-5])
        client.get("/api/live")
        assert made == [len(curve), len(curve) - 5]


# -- the first page


def test_the_first_page_names_the_store_and_the_last_run(client, store, tmp_path):
    told = client.get("/api/live").json()
    assert (told["name"], told["total"], told["running"]) == ("runs", 12, [])
    assert sum(told["counts"].values()) == 12
    change = RunDirectory(store / f"{5:016x}")
    change.write_status(change.status() | {"result": change.status()["result"] | {"steps": 4321}})
    assert client.get("/api/live").json()["latest"] == f"{5:016x}"
    nested = TestClient(make_app(a_store(tmp_path / "results" / "store", 2).parent), base_url="http://127.0.0.1")
    assert nested.get("/api/live").json()["name"] == "results/store"
    (tmp_path / "none").mkdir()
    empty = TestClient(make_app(tmp_path / "none"), base_url="http://127.0.0.1").get("/api/live").json()
    assert (empty["total"], empty["latest"], empty["counts"]) == (0, None, {})


WATCHED = """
import os, sys, torch, unstuck
from torch import nn
torch.set_num_threads(1)
model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
watch = unstuck.watch(model, optimizer, probe=torch.ones(2, 5, 8), out=sys.argv[1], every=2, trackers=())
for _ in range(4):
    watch.loss(model(torch.ones(2, 5, 8)).sum())
    optimizer.step()
watch.report()
print(flush=True)
sys.stdin.readline()
if sys.argv[2] == "killed":
    os._exit(9)
"""


@pytest.mark.parametrize("way", ["closed", "killed"])
def test_a_watched_training_runs_until_its_process_ends(client, store, way):
    def running():
        return [card["run_id"] for card in client.get("/api/live").json()["running"]]

    words = [sys.executable, "-c", WATCHED, str(store / "mine"), way]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        assert running() == ["mine"]
        process.stdin.close()
        process.wait()
    assert running() == []
    status = RunDirectory(store / "mine").status()
    assert status["state"] == "watched"
    assert status["ended"] is (way == "closed")


@pytest.mark.parametrize(("age", "interval", "runs"), [(500, 1, True), (700, 1, False), (7000, 2000, True)])
def test_a_watched_training_that_saves_no_more_is_no_longer_running(client, store, age, interval, runs):
    """By its own time between two savings; its process may be on another machine."""
    run = RunDirectory(store / "mine")
    run.path.mkdir()
    run.write_curve(pd.DataFrame({"step": [0, 10], "train_loss": [2.0, 1.0]}))
    run.write_watched("Tiny", 10, "mark", known={"process": {"pid": 1, "machine": "another"}, "interval": interval})
    then = time.time() - age
    os.utime(run.path / "curve.parquet", (then, then))
    assert bool(client.get("/api/live").json()["running"]) is runs


def test_cards_name_what_differs_and_the_head(client, store):
    """Two runs of one size that differ in the learning rate, and one without a curve."""
    curve = pd.read_csv(ROOT / "examples" / "stuck-watched.csv")
    held = []
    for i, lr in enumerate((0.1, 0.2, 0.2)):
        run = RunDirectory(store / f"{i:016x}")
        spec = run.spec()
        spec["task"] |= {"d": 4, "T": 8}
        spec["optim"]["lr"], spec["train"]["max_steps"] = lr, 1000 + i
        run._write("spec.yaml", json.dumps(spec).encode())
        run.write_status({"state": "running", "step": 892, "seconds": 87.3})
        run.write_curve(curve if i < 2 else curve[:1])
        held.append(run)
    with held[0].lock(), held[1].lock(), held[2].lock():
        cards = client.get("/api/live").json()["running"]
    assert [card["settings"]["lr"] for card in cards] == [0.1, 0.2, 0.2]
    assert not {"max_steps", "steps", "status"} & {name for card in cards for name in card["settings"]}
    _, layer, head = Forecaster().predict(Curve.from_frame(curve, "watch")).notes.head
    assert names(cards[0]["head"], f"layer {layer + 1}", f"head {head + 1}")
    assert cards[0]["signal"]
    assert cards[2]["exit"] is cards[2]["forecast"] is cards[2]["elapsed"] is None


def test_heads_of_a_run(client, store):
    told = client.get("/api/heads", params={"run": "0" * 16}).json()
    curve = RunDirectory(store / ("0" * 16)).curve()
    assert told["heads"] == [[0, 0]]
    assert told["values"][0] == pytest.approx(curve.head("attention", 0, 0), rel=1e-4)
    assert told["step"] == pytest.approx(curve.steps, rel=1e-4)
    assert told["chance"]["y"] == 1 / 8
    assert client.get("/api/heads", params={"run": "0" * 16, "measure": "nonsense"}).json() == told


# -- laws of runs that do not compare


def test_a_law_tells_what_it_ignores_and_how_to_fit_comparable_runs(tmp_path, capsys):
    store = mixed_store(tmp_path / "runs")
    client = TestClient(make_app(store), base_url="http://127.0.0.1")
    told = client.get("/api/law", params={"formula": "d + T"}).json()
    assert main(["fit", str(store), "d + T"]) == 0
    said = capsys.readouterr().err  # the command warns of the same
    assert names(told["warnings"][0], "lr", "0.5")
    assert told["warnings"][0][1:] in said
    assert names(said, *told["comparable"])
    at = dict(zip(told["run_id"], told["ignored"]["lr"], strict=True))
    assert {run for run, lr in at.items() if lr == 0.5} == {f"{i:016x}" for i in range(8)}
    again = client.get("/api/law", params={"formula": "d + T", "where": told["comparable"]}).json()
    assert again["warnings"] == again["comparable"] == []
    assert again["ignored"] == {}
    assert [round(x[1], 3) for x in again["terms"]] == [1.0, 0.5]


def test_the_setting_that_explains_the_residuals_comes_first(tmp_path):
    store = mixed_store(tmp_path / "runs")
    for i in range(0, 24, 2):
        run = RunDirectory(store / f"{i:016x}")
        spec = run.spec()
        spec["model"]["activation"] = "relu"  # which changes nothing here
        run._write("spec.yaml", json.dumps(spec).encode())
    client = TestClient(make_app(store), base_url="http://127.0.0.1")
    assert list(client.get("/api/law", params={"formula": "d + T"}).json()["ignored"]) == ["lr", "activation"]


def test_plateaus_at_different_thresholds_are_not_fitted_together(client, store):
    for i in (0, 1):
        run = RunDirectory(store / f"{i:016x}")
        status = run.status()
        status["result"]["threshold"] = 0.4
        run.write_status(status)
    told = client.get("/api/law", params={"formula": "d + T"}).json()
    assert names(told["refused"], "0.1", "0.4")
    assert "terms" not in told
    again = client.get("/api/law", params={"formula": "d + T", "where": told["comparable"]}).json()
    assert again["n"] + again["censored"] == 10
    assert "threshold=0.1" in client.get("/api/runs").json()["law"]["where"]
    assert main(["fit", str(store), "d + T"]) == 2
