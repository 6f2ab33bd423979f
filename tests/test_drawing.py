"""Pictures of curves, laws, forecasts and flows show the numbers of what they are of."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from unstuck.curve import Curve
from unstuck.errors import InvalidCombination
from unstuck.forecast import Event, Forecast, Outcome
from unstuck.forecast.survival import Survival
from unstuck.laws import fit_power_law
from unstuck.theory import Flow

pytest.importorskip("matplotlib")

ROWS = [{"step": s, "test_loss": 0.5, "attn_0_0": 0.1, "attn_0_1": s / 1000} for s in range(1, 900, 90)]
CURVE = Curve.from_rows(ROWS)
SURVIVAL = Survival(now=900, mean=math.log(1500), spread=0.1, probability=0.9)
FORECAST = Forecast(Outcome.EMERGES, now=900, signal="attention", step=1500, probability=0.8, distribution=SURVIVAL)
WITHOUT = Forecast(Outcome.NO_SIGN, now=900, signal="attention", event=Event.EXIT)


def runs():
    """T^1 with one run that had not emerged by step 900."""
    table = pd.DataFrame({"T": [64, 128, 256, 512], "plateau_steps": [128.0, 256.0, 512.0, np.nan]})
    return table.assign(status=["emerged"] * 3 + ["censored"], steps=[200, 300, 600, 900])


def lines(figure, axis=0):
    return [(line.get_xdata(), line.get_ydata()) for line in figure.axes[axis].lines]


def test_the_picture_of_a_law_has_its_runs():
    law = fit_power_law(runs(), "T")
    diagonal, emerged, censored = lines(law.plot())
    assert list(diagonal[0]) == list(diagonal[1])
    np.testing.assert_allclose(emerged[1], [128, 256, 512])
    np.testing.assert_allclose(censored[1], [900])
    np.testing.assert_allclose(np.r_[emerged[0], censored[0]], law.predict({"T": [64, 128, 256, 512]}))


def test_the_picture_of_a_law_counts_steps_from_the_start_if_it_has_an_offset():
    table = runs()[:3].assign(plateau_steps=lambda t: t["plateau_steps"] + 50)
    law = fit_power_law(table, "T", offset=50)
    _, (fitted, measured) = lines(law.plot())
    np.testing.assert_allclose(measured, [178, 306, 562])
    np.testing.assert_allclose(fitted, measured, rtol=1e-6)  # the law is exact


def test_the_picture_of_a_forecast_is_its_distribution():
    (steps, probability), now, step = lines(FORECAST.plot())
    assert steps[0] == pytest.approx(900)
    assert steps[-1] >= FORECAST.interval()[1]
    np.testing.assert_allclose(probability, [SURVIVAL.by(s) for s in steps])
    assert (now[0][0], step[0][0]) == (900, 1500)


def test_a_forecast_is_drawn_on_the_loss_of_its_run():
    figure = FORECAST.plot(CURVE)
    (steps, loss), *_ = lines(figure)
    assert (list(steps), set(loss)) == (list(CURVE.steps), {0.5})
    (zone,) = figure.axes[0].patches
    x = zone.get_extents().transformed(figure.axes[0].transData.inverted())
    np.testing.assert_allclose([x.x0, x.x1], FORECAST.interval())


def test_a_forecast_without_a_distribution_has_no_picture_of_its_own():
    with pytest.raises(InvalidCombination):
        WITHOUT.plot()
    assert len(lines(WITHOUT.plot(CURVE))) == 2  # the loss and the present step


def test_the_picture_of_a_flow_ends_after_its_plateau():
    flow = Flow(T=256, d=16, B=2)
    figure = flow.plot()
    (t, loss), plateau = lines(figure)
    end = flow.plateau().time
    assert plateau[0][0] == end
    assert np.interp(end, t, loss) == pytest.approx(0.1, abs=0.01)
    ((_, attention),) = lines(figure, axis=1)
    assert attention[0] == pytest.approx(2 / 256)  # uniform: B of T tokens
    assert attention[-1] > 0.5


def test_a_flow_whose_plateau_never_ends_can_be_drawn():
    (_, loss), *rest = lines(Flow(T=64, d=8, p=1.0).plot())
    assert rest == []
    assert loss.min() > 0.1


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (CURVE, ["attention", "layer 0, head 1"]),
        (fit_power_law(runs(), "T"), ["constant", "R²", "3 emerged, 1 censored"]),
        (FORECAST, ["emerges", "1,500", "80% interval"]),
        (Flow(T=64, d=4), ["plateau", f"{Flow(T=64, d=4).plateau().time:,.0f}"]),
    ],
)
def test_a_notebook_shows_numbers_and_a_picture(thing, words, monkeypatch):
    shown = thing._repr_html_()
    assert all(word in shown for word in words)
    assert re.search(r'<img alt="" src="data:image/png;base64,iVBOR', shown)  # the first bytes of every PNG
    monkeypatch.setattr("unstuck.drawing.find_spec", lambda _: None)  # without matplotlib
    plain = thing._repr_html_()
    assert "<img" not in plain
    assert shown.startswith(plain)


def test_what_a_notebook_shows_is_escaped():
    curve = Curve.from_frame(pd.DataFrame({"step": [1, 2], "<script>loss": [1.0, 2.0]}))
    assert "<script>" not in curve._repr_html_()


@pytest.mark.parametrize("thing", [Curve.from_rows([]), Curve.from_rows([{"step": 1, "attn_0_0": math.nan}]), WITHOUT])
def test_what_has_no_picture_is_shown_without_one(thing):
    assert "<img" not in thing._repr_html_()
