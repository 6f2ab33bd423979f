"""How the survival model is fitted: penalised maximum likelihood, and spreads calibrated on sizes left out."""

import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from .features import NAMES
from .model import LOGITS, SPREADS, WIDEST, Model, law, linear, quadratic

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
PENALTY = 0.01  # of the squared coefficients; chosen on sizes left out, where 0.001 to 0.1 do about as well
FOLDS = 6  # sizes are left out in so many parts
ITERATIONS = 80  # of L-BFGS
EDGES = (0.0, 0.15, 0.3, 0.5, 0.7, 1.0)  # of groups of stated fractions elapsed
LEVEL = 0.8  # coverage that spreads are calibrated to
UNLIKE = 0.99  # quantile of the training moments' distances, beyond which a run is unlike them
NEVER = 50.0  # logarithm of (step of an event / now) that stands for infinity
LEAST_LIKELIHOOD = -12.0  # logarithm: one impossible moment does not decide the fit


def fit(table: pd.DataFrame, kind: str = "attention", *, calibrated: bool = True) -> Model:
    """A model from a table of `moments_table`; every run has one vote."""
    x = table[list(NAMES)].to_numpy(dtype=float)
    centre, scale = x.mean(0), x.std(0) + 1e-6
    away = (x - centre) / scale
    location, spread, cure = _maximise(np.clip(away, -WIDEST, WIDEST), law(x), table)
    inverse = np.linalg.inv(np.cov(away.T) + 1e-3 * np.eye(len(NAMES)))
    distances = np.sqrt(np.einsum("ij,jk,ik->i", away, inverse, away))
    happens = table.groupby("run_id")["event"].apply(lambda e: e.notna().any())
    elapsed, factor = calibrate(table, left_out(table, kind)) if calibrated else ([0.5], [1.0])
    return Model(
        kind,
        centre.tolist(),
        scale.tolist(),
        location.tolist(),
        spread.tolist(),
        cure.tolist(),
        elapsed,
        factor,
        float(np.quantile(distances, UNLIKE)),
        inverse.tolist(),
        float(happens.mean()),
        int(happens.size),
        sorted(table["family"].unique()),
    )


def _maximise(z: Array, offset: Array, table: pd.DataFrame) -> tuple[Array, Array, Array]:
    """The coefficients of location, spread and cure with the highest penalised likelihood."""
    import torch  # only fitting needs it

    def tensor(values: Any) -> torch.Tensor:
        return torch.tensor(np.asarray(values, dtype=float))

    happened = table["event"].notna().to_numpy()
    ahead = log_ahead(table, table["event"].fillna(table["last"])).clip(1e-3, NEVER)
    votes = 1 / table.groupby("run_id")["step"].transform("size")
    u, weight, event = tensor(ahead), tensor(votes / votes.sum()), torch.tensor(happened)
    wide, narrow, law_says = tensor(quadratic(z)), tensor(linear(z)), tensor(offset)
    parts = [torch.zeros(n, dtype=torch.double) for n in (wide.shape[1], narrow.shape[1], narrow.shape[1])]
    parts[1][0], parts[2][0] = -1.0, 2.0
    location, spread, cure = (part.requires_grad_() for part in parts)

    def objective() -> torch.Tensor:
        mean = law_says + wide @ location
        sigma = torch.exp((narrow @ spread).clamp(*map(float, np.log(SPREADS))))
        share = torch.sigmoid((narrow @ cure).clamp(-LOGITS, LOGITS))
        likelihood = log_likelihood(u, event, mean, sigma, share)
        return PENALTY * sum((part[1:] ** 2).sum() for part in parts) - (weight * likelihood).sum()

    optimiser = torch.optim.LBFGS(parts, max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        value = objective()
        value.backward()
        return value

    optimiser.step(closure)
    found = [part.detach().numpy() for part in parts]
    return found[0], found[1], found[2]


def log_ahead(table: pd.DataFrame, step: pd.Series) -> pd.Series:
    """log(step / now), both counted from when the loss came to its level."""
    return np.log((step - table["since"]) / (table["step"] - table["since"]))


def log_likelihood(
    ahead: "torch.Tensor", event: "torch.Tensor", mean: "torch.Tensor", sigma: "torch.Tensor", share: "torch.Tensor"
) -> "torch.Tensor":
    """Of log(step of the event / now), or of log(last step / now) where no event was seen: with probability `share` it
    is normal and cut off below 0, else infinite."""
    import torch

    def log_survival(value: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.special.ndtr(-value).clamp(min=1e-12))

    value, cut = (ahead - mean) / sigma, log_survival(-mean / sigma)
    density = torch.log(share) - value**2 / 2 - torch.log(sigma) - np.log(2 * np.pi) / 2 - cut
    waiting = torch.log(1 - share + share * torch.exp((log_survival(value) - cut).clamp(max=0)) + 1e-12)
    return torch.where(event, density.clamp(min=LEAST_LIKELIHOOD), waiting)


def fold(size: str) -> int:
    """The part in which runs of a size are left out."""
    return zlib.crc32(size.encode()) % FOLDS


def left_out(table: pd.DataFrame, kind: str = "attention") -> pd.DataFrame:
    """For each moment the mean, spread and probability of a model that was fitted without runs of its size."""
    folds = table["size"].map(fold)
    parts = []
    for i in sorted(folds.unique()):
        model, mine = fit(table[folds != i], kind, calibrated=False), table[folds == i]
        estimates = [model.estimate(x, 1.0) for x in mine[list(NAMES)].to_numpy(dtype=float)]
        parts.append(pd.DataFrame([(e.mean, e.spread, e.probability) for e in estimates], index=mine.index))
    return pd.concat(parts).sort_index().set_axis(["mean", "spread", "probability"], axis=1)


def calibrate(table: pd.DataFrame, found: pd.DataFrame) -> tuple[list[float], list[float]]:
    """For groups of stated fractions elapsed: the factor of the spread with which 80% of the events of sizes left out
    lie in the 80% interval, one vote a run; `found` is what `left_out` gives for the table."""
    found = found.assign(run_id=table["run_id"], ahead=log_ahead(table, table["event"])).dropna()
    stated = np.exp(-np.maximum(found["mean"], 0.0))
    elapsed, factor = [], []
    for low, high in pairwise(EDGES):
        part = found[(stated > low) & (stated <= high)]
        if part["run_id"].nunique() < 10:
            continue
        elapsed.append((low + high) / 2)
        factor.append(_factor(part))
    return (elapsed, factor) if elapsed else ([0.5], [1.0])


def _factor(part: pd.DataFrame) -> float:
    """The factor of the spread at which the share of events within the 80% interval is 80%, by bisection."""
    votes = 1 / part.groupby("run_id")["ahead"].transform("size")
    low, high = np.log(0.2), np.log(5.0)
    for _ in range(30):
        middle = (low + high) / 2
        spread = part["spread"] * np.exp(middle)
        cut = ndtr(-part["mean"] / spread)
        place = (ndtr((part["ahead"] - part["mean"]) / spread) - cut) / np.maximum(1 - cut, 1e-9)
        inside = (place >= (1 - LEVEL) / 2) & (place <= (1 + LEVEL) / 2)
        low, high = (middle, high) if np.average(inside, weights=votes) < LEVEL else (low, middle)
    return float(np.exp((low + high) / 2))
