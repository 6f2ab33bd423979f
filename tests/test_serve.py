"""The dashboard's server: what it answers, and what it refuses."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from dashboards import Server
from stores import a_store
from unstuck.cli import main
from unstuck.errors import BadInput
from unstuck.runs.store import RunDirectory
from unstuck.serve.app import make_app


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
    for path in ("/app.js", "/app.css", "/plotly.js"):
        found = client.get(path)
        assert found.status_code == 200
        assert len(found.text) > 1000


@pytest.mark.parametrize(
    "words", [{"T": 512, "d": 64}, {"T": 64, "d": 16, "B": 8, "flow": "reduced"}, {"T": 99, "d": 5, "p": 0.3}]
)
def test_theory_says_what_predict_says(client, capsys, words):
    found = client.get("/api/theory", params=words).json()
    assert main([*found["command"].split()[1:], "--json"]) == 0
    assert found["plateau"] == json.loads(capsys.readouterr().out)["plateau"]
    assert len(found["t"]) == len(found["flows"]["exact"]["loss"]) == len(found["linearised"])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/theory?T=1&d=64", "T is 1"),
        ("/api/theory?T=abc&d=64", "T is 'abc'"),
        ("/api/theory?T=64&d=64&p=2", "p is 2"),
        ("/api/theory?T=64&d=64&flow=other", "other"),
        ("/api/curve?run=../../etc", "the name of a run"),
        ("/api/curve?run=..", "the name of a run"),
        ("/api/curve?run=", "the name of a run"),
        ("/api/attention?run=%2Fetc%2Fpasswd", "the name of a run"),
        ("/api/law?formula=import+os", "formula"),
        ("/api/law?formula=__import__('os')", "formula"),
        ("/api/law?formula=d&where=nonsense", "where"),
    ],
)
def test_bad_requests_are_answered_in_a_sentence(client, path, says):
    found = client.get(path)
    assert found.status_code == 400
    assert says in found.json()["error"]


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


def test_another_host_needs_the_token(store):
    client = TestClient(make_app(store, host="0.0.0.0", token="secret"), base_url="http://10.0.0.7")
    assert client.get("/").status_code == 403
    assert client.get("/api/runs?token=guess").status_code == 403
    assert client.get("/?token=secret").status_code == 200  # and keeps it in a cookie
    assert client.get("/api/runs").status_code == 200


def test_a_page_of_another_site_cannot_ask(store):
    rebound = TestClient(make_app(store), base_url="http://evil.example")
    assert rebound.get("/api/runs").status_code == 400


def test_names_are_data(client, tmp_path):
    evil = "<script>alert(1)</script>"
    there = TestClient(make_app(a_store(tmp_path / "evil", 4, name=evil)), base_url="http://127.0.0.1")
    answer = there.get("/api/runs")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_directory_that_is_not_there():
    with pytest.raises(BadInput, match="unstuck train"):
        make_app(Path("nowhere"))
    assert main(["serve", "nowhere"]) == 2


def test_a_hundred_page_loads_at_once(store):
    """Each with what the page asks for: script, style, plotly, theory, runs, a curve and a law."""
    paths = ["/", "/app.css", "/shared.js", "/app.js", "/plotly.js", "/api/theory?T=64&d=16", "/api/runs"]
    paths += ["/api/curve?run=" + "0" * 16, "/api/law?formula=d%2BT"]
    limits = httpx.Limits(max_connections=100)
    with Server(store) as address, httpx.Client(timeout=120, limits=limits) as client, ThreadPoolExecutor(100) as pool:
        pages = list(pool.map(lambda _: [client.get(address + path) for path in paths], range(100)))
    assert {answer.status_code for page in pages for answer in page} == {200}
    for answers in zip(*pages, strict=True):
        assert len({answer.content for answer in answers}) == 1  # all got the same
