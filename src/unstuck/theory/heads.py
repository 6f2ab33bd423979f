"""Attention heads that compete, then specialise: the gradient flow of paper 2 (regression variant, population loss).

The target is a sum of patterns, each a feature at a position: G = Σ_j g_j e_j ⊗ e_{position j}. Heads k with features
V_k and attention s_k over T positions predict Σ_k V_k s_kᵀ; with the residual R = G - Σ_k V_k s_kᵀ,

    dV_k/dt = R s_k,    ds_k/dt = J(s_k)^q (Rᵀ V_k),    J(s) = diag(s) - s sᵀ.

q = 2 is the gradient flow on the logits of a softmax; q = 1 the mirror flow of the published figure. Both are
integrated in the logits, which keeps s on the simplex: da_k/dt = Rᵀ V_k for q = 1, J(s_k) Rᵀ V_k for q = 2. Yüksel et
al. 2026.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp

from unstuck.errors import BadInput
from unstuck.scalars import real, whole

Array = NDArray[np.float64]
RTOL, ATOL = 1e-8, 1e-12


@dataclass(frozen=True)
class HeadTrajectory:
    """The flow at times t: features (n, heads, patterns), attention (n, heads, T), loss (n,)."""

    t: Array
    V: Array
    s: Array
    loss: Array

    @property
    def spread(self) -> Array:
        """The largest distance between the attention of two heads, (n,); V is not included."""
        gaps = self.s[:, :, None] - self.s[:, None]
        return np.sqrt((gaps**2).sum(-1)).max((1, 2))


@dataclass(frozen=True)
class HeadFlow:
    """Heads that learn patterns of given strengths. The defaults are those of paper 2's Figure 10.

    V starts at zero. Attention starts uniform, with a perturbation eps T N(0, 1) of the logits; without it the heads
    would stay identical. `V0` (heads, patterns) and `logits0` (heads, T) set other initial values.

    Examples:
        >>> flow = HeadFlow(eps=1e-3)
        >>> [round(x, 3) for x in flow.levels]
        [6.121, 1.945, 0.5, 0.0]
    """

    strengths: tuple[float, ...] = (1.7**2, 1.7, 1.0)  # g, of the patterns
    positions: tuple[int, ...] | None = None  # of each pattern; default: the first ones
    T: int = 40  # positions
    heads: int | None = None  # default: one for each pattern
    q: Literal[1, 2] = 2
    eps: float = 1e-6
    seed: int = 0
    V0: ArrayLike | None = None
    logits0: ArrayLike | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strengths, Iterable):
            raise BadInput("strengths", self.strengths, "a sequence of positive numbers")
        strengths = tuple(real("strengths", g, 1e-6, 1e6, "positive numbers") for g in self.strengths)
        T = whole("T", self.T, 2, 100_000, "a whole number from 2 to 100000")
        if not strengths or len(strengths) > T:
            raise BadInput("strengths", self.strengths, f"one to T = {T} numbers")
        given = range(len(strengths)) if self.positions is None else self.positions
        positions = tuple(whole("positions", x, 0, T - 1, f"whole numbers below T = {T}") for x in given)
        if not len(set(positions)) == len(positions) == len(strengths):
            raise BadInput("positions", positions, f"as many distinct positions below T = {T} as strengths")
        heads = len(strengths) if self.heads is None else whole("heads", self.heads, 1, 1000, "a whole number to 1000")
        if self.q not in (1, 2):
            raise BadInput("q", self.q, "1 (mirror flow) or 2 (gradient flow on logits)")
        real("eps", self.eps, 0.0, 1.0, "a number from 0 to 1")
        whole("seed", self.seed, 0, 2**32 - 1, "a whole number from 0")
        for name, value in (("strengths", strengths), ("T", T), ("positions", positions), ("heads", heads)):
            object.__setattr__(self, name, value)
        for name, start, columns in (("V0", self.V0, len(strengths)), ("logits0", self.logits0, T)):
            if start is not None:
                object.__setattr__(self, name, _rows(name, start, (heads, columns)))

    @property
    def target(self) -> Array:
        """G, (patterns, T)."""
        assert self.positions is not None
        G = np.zeros((len(self.strengths), self.T))
        G[np.arange(len(self.strengths)), list(self.positions)] = self.strengths
        return G

    @property
    def levels(self) -> list[float]:
        """The loss with the i strongest patterns learnt, 1/2 Σ_{j > i} g_j²: the plateaus of the flow."""
        g = sorted(self.strengths, reverse=True)
        return [0.5 * sum(x * x for x in g[i:]) for i in range(len(g) + 1)]

    @property
    def start(self) -> Array:
        """V and the logits at the start, in one vector."""
        assert self.heads is not None
        V: ArrayLike = np.zeros((self.heads, len(self.strengths))) if self.V0 is None else self.V0
        logits = self.logits0
        if logits is None:
            logits = self.eps * self.T * np.random.default_rng(self.seed).standard_normal((self.heads, self.T))
        return np.concatenate([np.ravel(V), np.ravel(logits)])

    def split(self, y: Array) -> tuple[Array, Array]:
        """Features (..., heads, patterns) and attention (..., heads, T) of state vectors (..., n)."""
        assert self.heads is not None
        cut = self.heads * len(self.strengths)
        V = y[..., :cut].reshape(*y.shape[:-1], self.heads, len(self.strengths))
        a = y[..., cut:].reshape(*y.shape[:-1], self.heads, self.T)
        e = np.exp(a - a.max(-1, keepdims=True))
        return V, e / e.sum(-1, keepdims=True)

    def loss(self, y: Array) -> Array:
        """1/2 |G - Σ_k V_k s_kᵀ|²."""
        V, s = self.split(y)
        return np.asarray(self.loss_of_patterns(V, s).sum(-1))

    def loss_of_patterns(self, V: Array, s: Array) -> Array:
        """Contribution of each pattern to the loss, 1/2 |R_j|², (..., patterns)."""
        return np.asarray(0.5 * ((self.target - np.swapaxes(V, -1, -2) @ s) ** 2).sum(-1))

    def velocity(self, y: Array) -> Array:
        """The flow's right-hand side."""
        V, s = self.split(y)
        R = self.target - V.T @ s  # (patterns, T)
        pull = V @ R  # Rᵀ V_k, (heads, T)
        if self.q == 2:
            pull = s * (pull - (s * pull).sum(1, keepdims=True))
        return np.concatenate([(s @ R.T).ravel(), pull.ravel()])

    def trajectory(self, until: float | None = None, points: int = 400) -> HeadTrajectory:
        """The flow from its start to time `until`; by default 1.3 times the time of its last stage."""
        if until is None:
            times = [t for t in self.stage_times() if t is not None]
            until = 1.3 * times[-1] if times else 100.0
        until = real("until", until, 1e-9, 1e9, "a positive time")
        early = np.geomspace(until / 1e4, until, points)  # stages are spread over decades
        t = np.unique(np.concatenate([[0.0], early, np.linspace(0, until, points)]))
        run = solve_ivp(
            lambda t, y: self.velocity(y), (0, until), self.start, method="LSODA", t_eval=t, rtol=RTOL, atol=ATOL
        )
        y = run.y.T
        V, s = self.split(y)
        return HeadTrajectory(run.t, V, s, self.loss(y))

    def stage_times(self, limit: float = 1e5) -> list[float | None]:
        """The time at which each pattern is learnt, strongest first: the loss is half-way between two levels. None if
        this is later than `limit`."""
        levels = self.levels
        marks = [math.fsum(pair) / 2 for pair in itertools.pairwise(levels)]
        events = []
        for i, mark in enumerate(marks):

            def event(t: float, y: Array, mark: float = mark) -> float:
                return float(self.loss(y)) - mark

            event.terminal = i == len(marks) - 1  # type: ignore[attr-defined]
            events.append(event)
        run = solve_ivp(
            lambda t, y: self.velocity(y),
            (0, limit),
            self.start,
            method="LSODA",
            events=events,
            rtol=RTOL,
            atol=ATOL,
            max_step=limit,
        )
        return [float(found[0]) if len(found) else None for found in run.t_events]


def _rows(name: str, given: ArrayLike, shape: tuple[int, int]) -> tuple[tuple[float, ...], ...]:
    """Initial values as plain numbers, so that flows can be compared and hashed."""
    wanted = f"finite numbers, {shape[0]} rows of {shape[1]}"
    try:
        values = np.array(given, dtype=float)
    except (TypeError, ValueError) as e:
        raise BadInput(name, type(given).__name__, wanted) from e
    if values.shape != shape or not np.isfinite(values).all():
        raise BadInput(name, f"of shape {values.shape}", wanted)
    return tuple(tuple(row) for row in values.tolist())
