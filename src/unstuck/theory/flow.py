"""Gradient flow of the toy model: trajectories and plateau lengths (Eq. 3-4, 12-14, 17-21; erratum 6)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unstuck.drawing import as_html, axes, draw_flow, figure_of
from unstuck.errors import BadInput
from unstuck.scalars import real

from .closed_form import blow_up_time
from .dormand_prince import Cells, times_to_reach
from .integrate import NoConvergence, flowline, time_to_reach
from .losses import Loss, ThreeVariableLoss, TwoVariableLoss
from .setting import Kind, Setting, check_threshold

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
MAX_TIME = 1e25  # of a trajectory


@dataclass(frozen=True)
class Trajectory:
    """A flow sampled at times `t`; every field is an array as long as `t`."""

    t: Array  # training time: steps times learning rate
    w: Array  # weight along W* (along the d - 1 directions across x~ when p > 0)
    w_tilde: Array | None  # weight along x~; None when p = 0
    delta_a: Array  # score of a relevant token minus score of another
    alpha: Array  # attention on one relevant token
    loss: Array  # on the training distribution
    test_loss: Array  # without cross-sample repetition, at the training B (D.1)


@dataclass(frozen=True)
class Plateau:
    """Time for the test loss to fall to `threshold`; `time` is None, with a `reason`, where there is no answer."""

    time: float | None
    threshold: float
    reason: str | None = None
    never: bool = False  # the loss never reaches the threshold; False if the solver failed


@dataclass(frozen=True)
class Flow(Setting):
    """Gradient flow of the toy model from a = 0, W = 0.

    `kind="exact"` follows the T scores of Eq. 2; `kind="reduced"` is the paper's flow, which takes Δa as the
    parameter.

    Examples:
        >>> round(Flow(T=4096, d=64).plateau().time)
        42037
    """

    @property
    def loss(self) -> Loss:
        """The training loss: two variables, or three when p > 0."""
        if self.p == 0:
            return TwoVariableLoss(self.T, self.d, self.B)
        return ThreeVariableLoss(self.T, self.d, self.B, self.p)

    @property
    def test_loss(self) -> Loss:
        """The loss that decides the plateau: the same without cross-sample repetition (D.1)."""
        return self.loss if self.p == 0 else ThreeVariableLoss(self.T, self.d, self.B, 0.0)

    def plateau(self, threshold: float = 0.1) -> Plateau:
        """Time for the test loss to fall from 1/2 to `threshold` (0.1, a fifth of the start, in the paper)."""
        threshold = check_threshold(threshold)
        reason = self._never(threshold)
        if reason is not None:
            return Plateau(None, threshold, reason, never=True)
        try:
            return Plateau(time_to_reach(self.loss, self.mobility, self.test_loss, threshold), threshold)
        except NoConvergence as e:
            return Plateau(None, threshold, str(e))

    def _never(self, threshold: float) -> str | None:
        """Why the test loss never falls to `threshold`, where that is so."""
        floor = (self.d - 1) / (2 * self.d)
        if self.p < 1 or threshold > floor:
            return None
        return (
            f"with p = 1 every relevant token is the same one, so the other d - 1 = {self.d - 1} directions are "
            f"never learnt and the test loss stays above {floor:.6g}"
        )

    def trajectory(self, until: float | None = None, times: Any = None) -> Trajectory:
        """The flow at the given `times`; without them, up to time `until`, at times that are dense where it moves fast.

        The default `until` is 1.5 times the blow-up time, which shows the plateau and the drop.
        """
        if times is not None:
            at = np.asarray(times, dtype=float)
            if at.ndim != 1 or not at.size or not np.all(np.isfinite(at)) or at.min() < 0:
                raise BadInput("times", times, "a non-empty list of finite times, none below 0")
            until = float(at.max())
        allowed = f"a time from 0 to {MAX_TIME:g}"
        end = 1.5 * blow_up_time(self) if until is None else real("until", until, 0.0, MAX_TIME, allowed)
        line = flowline(self.loss, self.mobility, end)
        t = at if times is not None else line.knots
        state = line.state(t)
        loss = self.loss
        return Trajectory(
            t=t,
            w=state[-2],
            w_tilde=state[0] if len(state) == 3 else None,
            delta_a=state[-1],
            alpha=np.asarray(loss.alpha(state[-1])),
            loss=np.asarray(loss.value(*state)),
            test_loss=np.asarray(self.test_loss.value(*state)),
        )

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw test loss and attention over training time, with the end of the plateau; on `ax` if it is given."""
        end = self.plateau().time
        path = self.trajectory(until=None if end is None else 1.2 * end)
        ax = axes("Flow.plot", ax)
        draw_flow(ax, path.t, path.test_loss, self.B * path.alpha, end)
        return figure_of(ax)

    def _repr_html_(self) -> str:
        plateau = self.plateau()
        rows: dict[str, Any] = {"plateau": plateau.reason if plateau.time is None else f"{plateau.time:,.0f}"}
        rows |= {"threshold of the test loss": plateau.threshold, "blow-up time": f"{blow_up_time(self):,.0f}"}
        return as_html(repr(self), rows, self.plot)


def plateau_lengths(T: Any, d: Any, B: Any = 1, p: Any = 0.0, kind: Kind = "exact", threshold: float = 0.1) -> Array:
    """Plateau lengths over a whole grid: T, d, B and p broadcast against each other.

    inf where the plateau never ends, nan where double precision is not sufficient. All cells are integrated together,
    and agree with `Flow.plateau` to 1e-6.

    Examples:
        >>> plateau_lengths(T=[[256], [512]], d=[16, 64]).round()
        array([[1366., 2690.],
               [2708., 5314.]])
    """
    grids = np.broadcast_arrays(T, d, B, p)
    cells = zip(*(grid.ravel().tolist() for grid in grids), strict=True)
    flows = [Flow(T_, d_, B_, p_, kind) for T_, d_, B_, p_ in cells]
    threshold = check_threshold(threshold)
    times = np.full(len(flows), np.inf)
    ending = [i for i, flow in enumerate(flows) if flow._never(threshold) is None]
    times[ending] = times_to_reach(Cells.of([flows[i] for i in ending]), threshold)
    for i in np.flatnonzero(np.isnan(times)):  # stiff
        time = flows[i].plateau(threshold).time
        times[i] = np.nan if time is None else time
    return times.reshape(grids[0].shape)
