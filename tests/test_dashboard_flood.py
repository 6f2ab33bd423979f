"""Many odd requests to the dashboard, one after the other and at once: no status 500, no hang, no growing memory.

The numbers are small here; `make test-all` sends 5,000 odd requests and 500 concurrent ones. All go to this machine.
"""

import json
import random
import resource
import string
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx
import pytest

from stores import a_store
from unstuck.store.store import RunDirectory

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0  # seconds that one answer may take on a busy machine
GROWTH = 10_000_000  # bytes of memory that a server may add over as many requests as have warmed it
REFUSED = {200, 304, 400, 403, 404, 405}

NAMES = ["T", "d", "B", "p", "flow", "run", "measure", "formula", "where", "since", "after", "token", "x", "", "T[]"]
NAMES += ["__class__"]
TEXTS = [
    *(
        "",
        "0",
        "1",
        "-1",
        "64",
        "999999999",
        "9" * 4400,
        "1e999",
        "-1e999",
        "nan",
        "inf",
        "0x10",
        "1_0",
        "٣",
        "½",
        "1e-320",
    ),
    *(
        "d + T",
        "d",
        "T/B",
        "d**d**d",
        "-" * 495 + "d",
        "(" * 300 + "d",
        "d +",
        "log(d",
        "sqrt(0)",
        "1/0",
        "d/(T-T)",
        "[red]d",
    ),
    *(
        "task=single_location",
        "T=64",
        "d<=",
        "=",
        " " * 2000,
        "a=" + " " * 2000,
        "T<=nan",
        "status=emerged",
        "d!=x",
        "d>1e999",
    ),
    *(
        "../..",
        "..",
        "/",
        ".",
        "a/b",
        "a\\b",
        "\x00",
        "\x1b[31m",
        "é" * 200,
        "ü" * 128,
        "a" * 255,
        "a" * 5000,
        "%00",
        "%2e%2e%2f",
    ),
    *(
        "exact",
        "reduced",
        "Exact",
        "None",
        "{}",
        "[]",
        "<script>",
        "'; --",
        "archive",
        "0" * 16,
        "f" * 16,
        "1" * 16 + ".1",
    ),
]
PATHS = [
    "/api/theory",
    "/api/runs",
    "/api/curve",
    "/api/live",
    "/api/heads",
    "/api/attention",
    "/api/law",
    "/",
    "/app.js",
    "/api",
    "/api/x",
    "//",
    "/../etc",
]
METHODS = ["GET"] * 12 + ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]
HEADERS = [
    {},
    {"Host": "evil.example"},
    {"Cookie": "unstuck_token=" + "x" * 3000},
    {"Cookie": ";;;=;"},
    {"Content-Length": "5"},
    {"Accept": "\xff"},
    {"If-None-Match": '"x"'},
    {"Range": "bytes=5-1"},
    {"X": "y" * 8000},
]


def odd_request(dice: random.Random, version: str) -> tuple[str, str, dict[str, str]]:
    """Method, path with query, and headers."""

    def text() -> str:
        if dice.random() < 0.2:
            return "".join(dice.choices(string.printable + "αβ√\u202e\U0001f600", k=dice.randint(1, 40)))
        return version if dice.random() < 0.05 else dice.choice(TEXTS)

    path = dice.choice(PATHS) if dice.random() < 0.95 else "/" + quote(text())
    words = [(dice.choice(NAMES), text()) for _ in range(dice.choice([0, 1, 2, 3, 4, 20]))]
    query = urlencode(words) if dice.random() < 0.9 else quote(text(), safe="&=+;%")
    headers = dice.choice(HEADERS) if dice.random() < 0.2 else {}
    return dice.choice(METHODS), f"{path}?{query}" if query else path, headers


class Served:
    """The dashboard of a directory in a process of its own, whose memory can be watched."""

    CODE = """
import socket, sys, uvicorn
from pathlib import Path
from unstuck.view.dashboard.app import KEEP, make_app
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
config = uvicorn.Config(make_app(Path(sys.argv[1])), log_level="critical", timeout_keep_alive=KEEP)
uvicorn.Server(config).run(sockets=[listening])
"""

    def __init__(self, directory: Path) -> None:
        words = [sys.executable, "-W", "ignore", "-c", self.CODE, str(directory)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.address = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def __enter__(self) -> "Served":
        for _ in range(200):
            try:
                httpx.get(self.address, timeout=PATIENCE)
                return self
            except httpx.ConnectError:
                time.sleep(0.1)
        raise AssertionError("the dashboard does not answer")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)

    def memory(self) -> int:
        """Bytes that the process has now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()


def send(client: httpx.Client, method: str, path: str, headers: dict[str, str]) -> int:
    body = {"content": b"x" * 5} if headers.get("Content-Length") else {}
    sent = {name: value.encode("latin-1") for name, value in headers.items()}
    return client.request(method, path, headers=sent, **body).status_code


def flood(store: Path, odd: int, at_once: int, threads: int) -> dict[str, object]:
    dice = random.Random(0)
    counts: dict[int, int] = {}
    failed: list[str] = []
    with Served(store) as served:
        with httpx.Client(base_url=served.address, timeout=PATIENCE) as client:
            version = client.get("/api/runs").json()["version"]

            def one(count: int) -> None:
                for _ in range(count):
                    method, path, headers = odd_request(dice, version)
                    status = send(client, method, path, headers)
                    counts[status] = counts.get(status, 0) + 1
                    if status not in REFUSED:
                        failed.append(f"{status} {method} {path!r} {headers}")

            one(odd // 2)
            warm = served.memory()
            one(odd - odd // 2)
            later = served.memory()

        def page(i: int) -> int:  # as a browser: a connection of its own
            path = [
                "/api/runs",
                f"/api/runs?since={version}",
                "/api/curve?run=" + "0" * 16,
                "/",
                "/api/law?formula=d%2BT&where=task%3Dsingle_location",
            ]
            with httpx.Client(base_url=served.address, timeout=PATIENCE * 5) as client:
                return client.get(path[i % len(path)]).status_code

        together, crowd = set[int](), list[int]()
        for _ in range(2):  # the first wave makes the server's threads, each with memory of its own
            with ThreadPoolExecutor(threads) as pool:
                together |= set(pool.map(page, range(at_once)))
            crowd.append(served.memory())
        return {
            "counts": counts,
            "failed": failed,
            "together": together,
            "growth": [later - warm, crowd[1] - crowd[0]],
            "first wave": crowd[0] - later,
        }


def odd_store(path: Path) -> Path:
    """Runs of which some are damaged, running or without a curve."""
    store = a_store(path, 14)
    (store / f"{1:016x}" / "status.json").write_text('{"state": "running", "step": 3}')
    (store / f"{2:016x}" / "curve.parquet").write_bytes(b"PAR1")
    (store / f"{3:016x}" / "spec.yaml").write_bytes(b"\xff")
    (store / f"{4:016x}" / "curve.parquet").unlink()
    spec = RunDirectory(store / f"{5:016x}").spec()
    spec["task"] |= {"d": float("inf"), "T": None, "name": "[red]\x1b[31m"}
    (store / f"{5:016x}" / "spec.yaml").write_text(json.dumps(spec).replace("Infinity", ".inf"))
    return store


@pytest.mark.parametrize(
    ("odd", "at_once", "threads"),
    [(300, 40, 20), pytest.param(5000, 500, 100, marks=pytest.mark.slow)],
)
def test_odd_requests_get_an_answer_and_leave_no_trace(tmp_path, odd, at_once, threads):
    found = flood(odd_store(tmp_path / "runs"), odd, at_once, threads)
    print(json.dumps(found, default=str))
    assert found["failed"] == []
    assert sum(found["counts"].values()) == odd
    assert {200, 400} <= set(found["counts"])
    assert found["together"] == {200}
    assert max(found["growth"]) < GROWTH
