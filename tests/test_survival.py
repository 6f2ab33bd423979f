"""The survival model: probabilities against SciPy's truncated normal, and a fit that finds what made its data."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtri_exp
from scipy.stats import norm, truncnorm

from amounts import examples
from unstuck.forecast import normal
from unstuck.forecast.features import FAINT_GAIN, NAMES
from unstuck.forecast.fitting import KNOWN, OTHERS, fit, log_likelihood
from unstuck.forecast.model import Model, law, shipped, terms
from unstuck.forecast.survival import Estimate, Survival, combine

MEANS, SPREADS = st.floats(0, 12), st.floats(0.02, 3)


def truncated(now, mean, spread):
    """The logarithm of the step, cut off below the present one."""
    return truncnorm((math.log(now) - mean) / spread, math.inf, mean, spread)


@given(st.floats(1, 1e6), MEANS, SPREADS, st.floats(0, 1), st.floats(1.001, 50))
@settings(max_examples=examples(200), deadline=None)
def test_the_probability_by_a_step_is_that_of_a_truncated_normal(now, mean, spread, share, times):
    survival = Survival(now, mean, spread, share)
    expected = share * truncated(now, mean, spread).cdf(math.log(times * now))
    assert survival.by(times * now) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert (survival.by(now), survival.by(now / 2), survival.soon) == (0, 0, survival.by(2 * now))


@given(st.floats(1, 1e6), MEANS, SPREADS, st.floats(0.01, 0.99))
@settings(max_examples=examples(200), deadline=None)
def test_quantiles_are_where_the_probability_is(now, mean, spread, level):
    survival = Survival(now, mean, spread, 1.0)
    low, high = survival.interval(level)
    assert now <= low <= survival.median <= high
    if high / now > 1 + 1e-9:
        assert survival.by(high) - survival.by(low) == pytest.approx(level, abs=1e-5)


@pytest.mark.parametrize("overdue", [0, 3, 8, 30])
def test_what_is_long_overdue_still_takes_time(overdue):
    """Far in the tail the rest of a normal distribution is exponential, not a jump at the present step."""
    survival = Survival(1000.0, math.log(1000) - 0.1 * overdue, 0.1, 1.0)
    known = truncated(1000.0, survival.mean, 0.1)
    assert survival.median == pytest.approx(math.exp(known.median()), rel=1e-6)
    assert 0 < survival.by(1001) < 0.5
    assert survival.interval(0.8) == pytest.approx(np.exp(known.ppf([0.1, 0.9])), rel=1e-6)


def test_the_interval_holds_its_share_by_integration():
    survival = Survival(700.0, math.log(600), 0.4, 0.3)
    low, high = survival.interval(0.8)
    density = norm(math.log(600), 0.4).pdf
    inside, all_of_it = (quad(density, *np.log([a, b]))[0] for a, b in ((low, high), (700, 1e6)))
    assert inside / all_of_it == pytest.approx(0.8, abs=1e-6)


@given(st.floats(1, 1e4), st.floats(0.01, 1))
@settings(max_examples=examples(50), deadline=None)
def test_what_has_not_come_is_less_likely_by_the_rule_of_bayes(now, share):
    estimate = Estimate(math.log(500), 0.3, share)
    waits = share * norm.sf(math.log(now), math.log(500), 0.3)
    assert estimate.not_yet(now) == pytest.approx(waits / (waits + (1 - share)) if waits else 0, abs=1e-9)
    assert estimate.passed(now) == pytest.approx(norm.cdf(math.log(now), math.log(500), 0.3))


def test_a_step_of_zero_is_before_everything():
    assert Estimate(3.0, 0.1, 0.7).passed(0) == 0
    assert Estimate(3.0, 0.1, 0.7).not_yet(0) == pytest.approx(0.7)
    assert Survival(0.0, math.log(20), 0.1, 1.0).median == pytest.approx(20)


@given(st.floats(1, 1e4), st.floats(0, 1e4), st.floats(0.01, 0.99), st.floats(1.01, 100))
@settings(max_examples=examples(50), deadline=None)
def test_steps_counted_from_later_are_the_same_steps_later(now, since, share, multiple):
    estimate = Estimate(math.log(500), 0.3, share)
    here, later = estimate.after(now), estimate.after(since + now, since)
    assert later.median - since == pytest.approx(here.median, rel=1e-6, abs=1e-6)
    assert later.interval(0.8) == pytest.approx([since + x for x in here.interval(0.8)], rel=1e-6)
    assert later.by(since + multiple * now) == pytest.approx(here.by(multiple * now), abs=1e-6)
    assert later.within(multiple) == pytest.approx(here.within(multiple), abs=1e-6)
    assert later.soon == pytest.approx(here.soon, abs=1e-6)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_two_estimates_together_err_as_much_as_is_said(correlation):
    """Errors drawn with this correlation, weighted by the inverse of their variances."""
    spreads = np.array([0.1, 0.3])
    covariance = np.outer(spreads, spreads) * [[1, correlation], [correlation, 1]]
    errors = np.random.default_rng(0).multivariate_normal([0, 0], covariance, 100_000)
    found = [combine(Estimate(a, 0.1, 0.9), Estimate(b, 0.3, 0.8), correlation, 0.5) for a, b in errors[:100]]
    means = errors @ (spreads**-2 / np.sum(spreads**-2))
    assert [f.mean for f in found] == pytest.approx(means[:100])
    assert found[0].spread == pytest.approx(means.std(), rel=0.02)
    assert found[0].probability == pytest.approx(9 * 4 / (1 + 9 * 4))  # odds multiply
    assert combine(Estimate(0, 1, 0.9), Estimate(0, 1, 0.8), 0, 0.9).probability == pytest.approx(0.8)  # no news


# -- the likelihood and its fit


def test_the_likelihood_is_that_of_a_mixture_with_censoring():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    mean, sigma, share = rng.normal(0.5, 0.5, 50), rng.uniform(0.2, 1, 50), rng.uniform(0.05, 0.95, 50)
    ahead, event = mean.clip(0.1) * rng.uniform(0.3, 2, 50), rng.random(50) < 0.5
    by_scipy = [
        math.log(p * known.pdf(u) if e else 1 - p * known.cdf(u))
        for u, e, m, s, p in zip(ahead, event, mean, sigma, share, strict=True)
        for known in [truncnorm(-m / s, math.inf, m, s)]
    ]
    given_ = [torch.tensor(x) for x in (ahead, event, mean, sigma, share)]
    assert log_likelihood(*given_).numpy() == pytest.approx(by_scipy, abs=1e-6)
    leaves = [x.clone().requires_grad_() for x in given_[2:]]
    assert torch.autograd.gradcheck(lambda *x: log_likelihood(given_[0], given_[1], *x), leaves)


TRUTH = {"gain": 0.3, "trend": -0.2}  # coefficients of the location beside the law, for standardised features
SIGMA, CURE, CURE_INTERCEPT = 0.35, {"gain": 1.2, "setback": -0.8}, 0.8


def simulated(runs, seed):
    """Moments of runs that follow the model: features, log(event / now), some that cannot emerge, some cut short."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((runs, len(NAMES)))
    x = z.copy()
    gain = NAMES.index("gain")
    x[:, gain] = np.log(0.15 + FAINT_GAIN) + 0.7 * z[:, gain]
    share = 1 / (1 + np.exp(-CURE_INTERCEPT - sum(c * z[:, NAMES.index(n)] for n, c in CURE.items())))
    mean = law(x) + sum(c * z[:, NAMES.index(n)] for n, c in TRUTH.items())
    ahead = truncnorm(-mean / SIGMA, np.inf, mean, SIGMA).rvs(runs, random_state=rng)
    happens = rng.random(runs) < share
    stopped = rng.uniform(0.3, 4, runs)  # log(last step / now)
    event = np.where(happens & (ahead < stopped), 100 * np.exp(ahead), np.nan)
    table = pd.DataFrame(x, columns=list(NAMES)).assign(
        run_id=[str(i) for i in range(runs)], family="simulated", since=0.0, step=100.0, event=event
    )
    table["size"] = [f"{i % 40}" for i in range(runs)]
    return table.assign(last=100 * np.exp(stopped)), happens, ahead


@pytest.fixture(scope="module")
def fitted():
    pytest.importorskip("torch")
    return fit(simulated(2500, 0)[0])


def test_the_fit_finds_the_coefficients_that_made_its_data(fitted):
    for name in NAMES:
        i = 1 + NAMES.index(name)
        assert fitted.location[i] == pytest.approx(TRUTH.get(name, 0.0), abs=0.06), name
        assert fitted.cure[i] == pytest.approx(CURE.get(name, 0.0), abs=0.3), name
        assert fitted.spread[i] == pytest.approx(0, abs=0.1), name
    assert math.exp(fitted.spread[0]) == pytest.approx(SIGMA, rel=0.15)
    assert fitted.cure[0] == pytest.approx(CURE_INTERCEPT, abs=0.25)


def test_on_fresh_data_intervals_hold_80_percent(fitted):
    table, happens, ahead = simulated(3000, 1)
    survivals = [fitted.estimate(x, 100.0).after(100.0) for x in table[list(NAMES)].to_numpy()]
    inside = [
        low <= 100 * math.exp(u) <= high
        for s, u, h in zip(survivals, ahead, happens, strict=True)
        if h
        for low, high in [s.interval(0.8)]
    ]
    assert 0.75 <= np.mean(inside) <= 0.85


def test_on_fresh_data_probabilities_come_true():
    """With 50 runs for each coefficient; with 15, what is stated as 64% came in 47%."""
    pytest.importorskip("torch")
    many = fit(simulated(8000, 0)[0], calibrated=False)
    table, happens, ahead = simulated(8000, 1)
    soon = np.array([many.estimate(x, 100.0).after(100.0).soon for x in table[list(NAMES)].to_numpy()])
    came = happens & (ahead < math.log(2))
    for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 0.5)):
        part = (soon >= low) & (soon < high)
        assert part.sum() > 1000
        assert came[part].mean() == pytest.approx(soon[part].mean(), abs=0.04)


def test_features_far_from_those_of_the_fit_are_unlike_them(fitted):
    fresh = simulated(1000, 2)[0][list(NAMES)].to_numpy()
    assert np.mean([fitted.is_unlike(x) for x in fresh]) < 0.04
    assert all(fitted.is_unlike(x) for x in fresh[:20] + 12 * np.asarray(fitted.scale))


def test_models_are_named_by_their_coefficients():
    for kind, models in shipped().items():
        for model, form in ((models.known, KNOWN), (models.others, OTHERS)):
            assert (model.kind, len(model.centre)) == (kind, len(NAMES))
            assert tuple(map(len, (model.location, model.spread, model.cure))) == form.terms
            assert Model(**model.as_dict()).digest == model.digest
            assert Model(**{**model.as_dict(), "base": 0.123}).digest != model.digest
            assert model.elapsed == sorted(model.elapsed)


def test_a_task_of_the_fit_has_a_model_of_its_own():
    models = shipped()["attention"]
    assert models.of("regression") is models.of("single_location") is models.known
    assert models.of(None) is models.of("my_task.py") is models.others
    assert models.known.digest != models.others.digest


def test_the_terms_of_the_model():
    z = np.array([2.0, 3.0, 5.0])
    assert terms(z).tolist() == [1, 2, 3, 5, 4, 6, 10, 9, 15, 25]
    for many in (0, 2, 4, 6):
        assert terms(z, many).tolist() == terms(z).tolist()[:many]
    x = np.zeros(len(NAMES))
    for gain in (0.05, 0.3, 1.0):
        x[NAMES.index("gain")] = math.log(gain + FAINT_GAIN)
        assert math.exp(-law(x)) == pytest.approx(math.erf(math.sqrt(gain)))  # fraction elapsed, by the progress law


@given(st.floats(-1000, 40))
def test_logarithms_of_the_normal_distribution_are_scipys(z):
    assert normal.log_cdf(z) == pytest.approx(float(log_ndtr(z)), rel=1e-9, abs=1e-300)
    y = -math.exp(min(abs(z), 12.0) * math.copysign(1, z))  # from -1.6e5 to -6e-6
    assert normal.log_cdf_inverse(y) == pytest.approx(float(ndtri_exp(y)), rel=1e-9, abs=1e-9)
