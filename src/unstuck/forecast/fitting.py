"""How the survival model is fitted: penalised maximum likelihood, and spreads calibrated on runs left out.

The model for runs of known tasks is calibrated on sizes left out, that for runs of other tasks on tasks left out.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from unstuck.config.names import shown_name

from .features import NAMES
from .model import LOGITS, SPREADS, WIDEST, Model, Models, law, terms
from .runs import NEVER

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
PENALTY = 0.01  # of the squared coefficients; chosen on sizes left out, where 0.001 to 0.1 do about as well
FOLDS = 6  # sizes are left out in so many parts
ITERATIONS = 80  # of L-BFGS
EDGES = (0.0, 0.15, 0.3, 0.5, 0.7, 1.0)  # of groups of stated fractions elapsed
LEAST_RUNS = 10  # with an event, for a group of stated fractions to be calibrated
LEVEL = 0.8  # coverage that spreads are calibrated to
FACTORS = np.geomspace(0.2, 5.0, 162)  # of the spread, 2% apart
UNLIKE = 0.99  # quantile of the training moments' distances, beyond which a run is unlike them
INFINITE = 50.0  # logarithm of (step of an event / now) that stands for infinity
LEAST_LIKELIHOOD = -12.0  # logarithm: one impossible moment does not decide the fit


@dataclass(frozen=True)
class Form:
    """What kind of model is fitted."""

    terms: tuple[int, int, int]  # of location, spread and cure
    part: Callable[[pd.DataFrame], "pd.Series[Any]"]  # in which a row is left out for calibration
    most_votes: float = np.inf  # of a task, which its runs share if they are more


def _task_or_fold(table: pd.DataFrame) -> "pd.Series[Any]":
    """The task of each row; runs that cannot emerge have none to leave out, and are left out by size."""
    return tasks(table).where(~table["family"].isin(NEVER), table["size"].map(fold).astype(str))


def tasks(table: pd.DataFrame) -> "pd.Series[str]":
    """The task of each row, which begins the name of its family."""
    return table["family"].str.partition(", ")[0]


FEATURES = 1 + len(NAMES)
KNOWN = Form((FEATURES * (FEATURES + 1) // 2, FEATURES, FEATURES), lambda table: table["size"].map(fold))
#: The law without a correction, and a spread by the best head's gain now and a little earlier: chosen on tasks left
#: out as the simplest form with few alarms. tools/sensitivity.py --others compares it with other forms.
OTHERS = Form((0, 3, FEATURES), _task_or_fold, most_votes=20)


def fit_both(table: pd.DataFrame, kind: str = "attention", *, calibrated: bool = True) -> Models:
    """The models of one kind of evidence, from a table of `moments_table`."""
    return Models(*(fit(table, kind, form, calibrated=calibrated) for form in (KNOWN, OTHERS)))


def fit(table: pd.DataFrame, kind: str = "attention", form: Form = KNOWN, *, calibrated: bool = True) -> Model:
    """A model from a table of `moments_table`."""
    x = table[list(NAMES)].to_numpy(dtype=float)
    centre, scale = x.mean(0), x.std(0) + 1e-6
    away = (x - centre) / scale
    location, spread, cure = _maximise(np.clip(away, -WIDEST, WIDEST), law(x), table, form)
    inverse = np.linalg.inv(np.cov(away.T) + 1e-3 * np.eye(len(NAMES)))
    distances = np.sqrt(np.einsum("ij,jk,ik->i", away, inverse, away))
    happens = table.groupby("run_id")["event"].apply(lambda e: e.notna().any())
    elapsed, factor = calibrate(table, left_out(table, kind, form), form) if calibrated else ([0.5], [1.0])
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
        sorted({name for task in tasks(table).unique() for name in (task, shown_name(task))}),
    )


def _maximise(z: Array, offset: Array, table: pd.DataFrame, form: Form) -> tuple[Array, Array, Array]:
    """The coefficients of location, spread and cure with the highest penalised likelihood."""
    import torch  # only fitting needs it

    def tensor(values: Any) -> torch.Tensor:
        return torch.tensor(np.asarray(values, dtype=float))

    happened = table["event"].notna().to_numpy()
    ahead = log_ahead(table, table["event"].fillna(table["last"])).clip(1e-3, INFINITE)
    counts = votes(table, form)
    u, weight, event = tensor(ahead), tensor(counts / counts.sum()), torch.tensor(happened)
    known, law_says = [tensor(terms(z, many)) for many in form.terms], tensor(offset)
    parts = [torch.zeros(many, dtype=torch.double) for many in form.terms]
    parts[1][0], parts[2][0] = -1.0, 2.0
    location, spread, cure = (part.requires_grad_() for part in parts)

    def objective() -> torch.Tensor:
        mean = law_says + known[0] @ location
        sigma = torch.exp((known[1] @ spread).clamp(*map(float, np.log(SPREADS))))
        share = torch.sigmoid((known[2] @ cure).clamp(-LOGITS, LOGITS))
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


def left_out(table: pd.DataFrame, kind: str = "attention", form: Form = KNOWN) -> pd.DataFrame:
    """For each moment the mean, spread and probability of a model that was fitted without runs of its part."""
    parts, found = form.part(table), []
    for part in sorted(parts.unique()):
        model, mine = fit(table[parts != part], kind, form, calibrated=False), table[parts == part]
        estimates = [model.estimate(x, 1.0) for x in mine[list(NAMES)].to_numpy(dtype=float)]
        found.append(pd.DataFrame([(e.mean, e.spread, e.probability) for e in estimates], index=mine.index))
    return pd.concat(found).sort_index().set_axis(["mean", "spread", "probability"], axis=1)


def votes(table: pd.DataFrame, form: Form) -> "pd.Series[float]":
    """What each row counts: a run has one vote, unless its task has more runs than votes."""
    mine = 1 / table.groupby("run_id")["step"].transform("size")
    return mine * np.minimum(1.0, form.most_votes / mine.groupby(tasks(table)).transform("sum"))


def calibrate(table: pd.DataFrame, found: pd.DataFrame, form: Form = KNOWN) -> tuple[list[float], list[float]]:
    """For groups of stated fractions elapsed: the factor of the spread with which 80% of the events of runs left out
    lie in the 80% interval; `found` is what `left_out` gives for the table."""
    table = table.assign(mean=found["mean"], spread=found["spread"], ahead=log_ahead(table, table["event"]))
    table = table.dropna(subset=["ahead", "mean"])
    stated = np.exp(-np.maximum(table["mean"], 0.0))
    elapsed, factor = [], []
    for low, high in pairwise(EDGES):
        part = table[(stated > low) & (stated <= high)]
        if part["run_id"].nunique() < LEAST_RUNS:
            continue
        elapsed.append((low + high) / 2)
        factor.append(_factor(part, votes(part, form)))
    return (elapsed, factor) if elapsed else ([0.5], [1.0])


def _factor(part: pd.DataFrame, weights: "pd.Series[float]") -> float:
    """The least factor of the spread at which the share of events within the 80% interval is 80%; where none does, as
    when some events come at once and others late, that with the largest share."""
    found = [_coverage(part, factor * part["spread"], weights) for factor in FACTORS]
    return float(FACTORS[np.argmax(np.minimum(found, LEVEL))])


def _coverage(part: pd.DataFrame, spread: "pd.Series[float]", weights: "pd.Series[float]") -> float:
    """The share of events within the 80% interval."""
    cut = ndtr(-part["mean"] / spread)
    place = (ndtr((part["ahead"] - part["mean"]) / spread) - cut) / np.maximum(1 - cut, 1e-9)
    inside = (place >= (1 - LEVEL) / 2) & (place <= (1 + LEVEL) / 2)
    return float(np.average(inside, weights=weights))
