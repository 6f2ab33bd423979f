"""Answers of the forecaster that was shipped before the survival model, at the moments of `unstuck bench forecast`.

    python tools/shipped_rule.py ask DIR                          the curves and moments of the benchmark, as files
    PYTHONPATH=OLD/src python tools/shipped_rule.py answer DIR    with OLD a checkout of COMMIT: the table of answers

The best signal that a curve has, without a law. The answer is that of the attention, whatever the loss shows.
"""

import math
import sys
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[1]
OUT = ROOT / "results" / "forecast-shipped.csv"
COMMIT = "70d9855"


def ask(folder: Path) -> None:
    from unstuck.forecast.benchmark import VERSION, Benchmark

    benchmark = Benchmark.of(ROOT / "results" / "store")
    folder.mkdir(parents=True, exist_ok=True)
    moments = benchmark.moments
    runs = {run.run_id: run for run in [*benchmark.runs, *benchmark.others]}
    files = {run_id: f"{i}.parquet" for i, run_id in enumerate(moments["run_id"].unique())}
    for run_id, file in files.items():
        runs[run_id].curve.to_frame().to_parquet(folder / file)
    moments.assign(file=moments["run_id"].map(files)).to_parquet(folder / "moments.parquet")
    (folder / "version").write_text(f"benchmark version {VERSION}, digest {benchmark.digest}", encoding="utf-8")


def answer(folder: Path) -> None:
    from unstuck.curve import Curve
    from unstuck.forecast import Forecaster

    rows = []
    for file, moments in pd.read_parquet(folder / "moments.parquet").groupby("file", sort=False):
        curve = Curve(pd.read_parquet(folder / str(file)))
        for run_id, step in moments[["run_id", "step"]].itertuples(index=False):
            said = Forecaster().from_attention(curve.truncate(step))
            interval, distribution = said.interval(), said.distribution
            if said.step is None or interval is None or distribution is None:
                continue
            estimate: Any = distribution.estimate  # type: ignore[attr-defined]  # of that commit
            passed = [estimate.passed(math.log(x)) for x in (step, 2 * step)]
            soon = 1.0 if passed[0] >= 1 else (passed[1] - passed[0]) / (1 - passed[0])
            rows.append((run_id, step, said.step, *interval, soon, said.signal))
    columns = ["run_id", "step", "median", "low", "high", "soon", "signal"]
    text = pd.DataFrame(rows, columns=columns).to_csv(index=False, float_format="%.6g")
    asked = (folder / "version").read_text(encoding="utf-8")
    OUT.write_text(f"# the forecaster of commit {COMMIT}, at the moments of {asked}\n{text}", encoding="utf-8")


if __name__ == "__main__":
    {"ask": ask, "answer": answer}[sys.argv[1]](Path(sys.argv[2]))
