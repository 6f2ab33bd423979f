"""incremental-regression: on Gaussian tokens, descent on the loss is the flow of the heads (Proposition 1).

The regression variant of the chain with one lag a group and Frobenius-orthogonal features: three heads whose attention
scores and d x d value matrices are parameters. The loss of gradient descent on the expected loss, and of stochastic
gradient descent on new sequences at every step, beside the flow of features and attention (q = 2), which has one number
a pattern instead of a matrix.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from unstuck.papers.figure import Claim, Job, Profile, Progress
from unstuck.papers.style import BLACK, BLUE, ORANGE, panels
from unstuck.tasks.markov_regression import MarkovRegression
from unstuck.theory.heads import HeadFlow
from unstuck.training.seeds import stream

D, T, EPS, UNTIL, BATCH = 8, 20, 1e-2, 60.0, 64
RATE = 0.05  # step size of gradient descent, as time of the flow


def plan(profile: Profile) -> list[Job]:
    return [Job("descent of three heads", 2, 20.0)]


def task() -> MarkovRegression:
    """One lag a group; the last of T tokens' predictions sees them all."""
    return MarkovRegression(d=D, span=1, groups=3, features="frobenius", scored=T - 2, noise=1e-3)


def flow_of(A: torch.Tensor, logits: np.ndarray) -> HeadFlow:
    """The flow in the span of the features: strengths |A_k|, at the positions of their lags, the last first."""
    strengths = tuple(float(x) for x in A.flatten(1).norm(dim=1))
    return HeadFlow(strengths, positions=(T - 1, T - 2, T - 3), T=T, q=2, logits0=logits)


def expected_loss(A: torch.Tensor, V: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """1/2 E |y - y*|² over Gaussian tokens: 1/2 Σ_s |G_s - Σ_k a_ks V_k|², G_s the feature of the lag at position s."""
    G = torch.zeros(T, D, D)
    G[[T - 1, T - 2, T - 3]] = A
    return 0.5 * (G - torch.einsum("ks,kij->sij", logits.softmax(-1), V)).square().sum()


def descend(A: torch.Tensor, logits: np.ndarray, sampled: bool) -> pd.DataFrame:
    """Loss over time of descent on the expected loss, or on the last prediction of new sequences."""
    V = torch.zeros(3, D, D, requires_grad=True)
    a = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    t, rng, rows = task(), stream(0, "data"), []
    lag_matrices = t.lag_matrices(A, range(3))
    for step in range(round(UNTIL / RATE) + 1):
        loss = expected_loss(A, V, a)
        if step % 4 == 0:
            rows.append({"time": step * RATE, "loss": loss.item()})
        if sampled:
            x = torch.randn(BATCH, T, D, generator=rng)
            target = t.along(x, lag_matrices)[:, -1]
            said = torch.einsum("ks,kij,nsj->ni", a.softmax(-1), V, x)
            loss = 0.5 * (said - target).square().sum(-1).mean()
        loss.backward()
        with torch.no_grad():
            for p in (V, a):
                p -= RATE * p.grad  # type: ignore[operator]
                p.grad = None
    return pd.DataFrame(rows)


def data(profile: Profile, progress: Progress) -> pd.DataFrame:
    A = task().world(stream(0, "world"))["A"]
    A = A / A[0].norm() * 1.7**2  # the strongest pattern as in Figure 10, so that times compare
    logits = EPS * np.random.default_rng(0).standard_normal((3, T))
    flow = flow_of(A, logits).trajectory(UNTIL)
    parts = [pd.DataFrame({"time": flow.t, "loss": flow.loss}).assign(kind="flow")]
    for i, (kind, sampled) in enumerate((("descent", False), ("sgd", True))):
        parts.append(descend(A, logits, sampled).assign(kind=kind))
        progress(i + 1, 2)
    return pd.concat(parts, ignore_index=True)


def draw(table: pd.DataFrame) -> Figure:
    picture, (ax,) = panels(width=5.4, height=3.7)
    styles: dict[str, dict[str, Any]] = {
        "flow": {"color": BLACK, "lw": 1.2, "label": "flow of the heads, q = 2"},
        "descent": {"color": BLUE, "lw": 3.0, "alpha": 0.5, "label": "descent on the expected loss"},
        "sgd": {"color": ORANGE, "lw": 1.2, "label": f"SGD, {BATCH} new sequences a step"},
    }
    for kind, style in styles.items():
        rows = table[table["kind"] == kind]
        ax.plot(rows["time"], rows["loss"], **style)
    strengths = [1.7**2, 1.7, 1.0]
    for i in range(3):
        ax.axhline(0.5 * sum(g * g for g in strengths[i:]), color="#999999", lw=0.8, ls=":")
    ax.set(xlabel="time (steps × learning rate)", ylabel="expected loss", title="dotted: patterns learnt one by one")
    ax.legend(loc="upper right")
    return picture


def compare(table: pd.DataFrame) -> list[Claim]:
    loss = {kind: rows.set_index("time")["loss"] for kind, rows in table.groupby("kind")}
    apart = {}
    for kind in ("descent", "sgd"):
        flow = np.interp(loss[kind].index, loss["flow"].index, loss["flow"])
        apart[kind] = float(np.abs(loss[kind].to_numpy() - flow).max() / flow.max())
    equal = "the loss's gradient flow equals the heads' flow (Proposition 1)"
    text = f"at most {apart['descent']:.1%} of the first loss apart"
    return [
        Claim("descent on the expected loss beside the flow", text, equal, apart["descent"] < 0.02, "steps of 0.05"),
        Claim("SGD beside the flow", f"at most {apart['sgd']:.1%} of the first loss apart"),
    ]
