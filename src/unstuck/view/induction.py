"""What `unstuck predict induction` prints."""

from rich.text import Text

from unstuck.laws.induction import Prediction, Setting
from unstuck.view.console import console, new_table, print_rows


def explain_induction(setting: Setting, found: list[Prediction]) -> None:
    out = console()
    s = setting
    text = f"burst {s.burst:g}" if s.burst else "natural text"
    what = f"batch {s.batch}, context {s.context}, {text}"
    out.print(Text.assemble((what, "bold"), f": {s.tokens_a_step:,} tokens a step\n"))
    table = new_table("law", "steps", "interval", "tokens", "formula", whole=5)
    for p in found:
        bounds = "–" if p.interval is None else f"{p.interval[0]:,.0f} to {p.interval[1]:,.0f}"
        tokens = "–" if p.steps is None else f"{p.steps * s.tokens_a_step:,.3g}"
        cells = (p.law, _steps(p), bounds, tokens, p.formula)
        table.add_row(*cells, style="" if p.applies else "dim")
    print_rows(table)
    out.print()
    for p in found:
        covers = f"the interval covers {p.interval_of}" if p.interval_of else ""
        start = f"starts from {p.reference}" if p.anchored else ""
        said = "; ".join(filter(None, [p.note, start, covers, p.source]))
        out.print(f"{p.law}: {said}.", style="dim")
    out.print(f"\n{summary(found)}")


def _steps(p: Prediction) -> str:
    if p.steps is not None:
        return f"{p.steps:,.0f}"
    return "–" if p.ratio is None else f"{p.ratio:.3g} × {p.reference}"


def summary(found: list[Prediction]) -> str:
    """The answer in one sentence: by our runs if they have a law, else by the laws that apply."""
    known = [p for p in found if p.steps is not None]
    usable = [p for p in known if p.applies or p.law == "ours"] or known
    steps = sorted(p.steps for p in usable if p.steps is not None)
    apart = f"the laws differ by a factor of {steps[-1] / steps[0]:.1f}" if len(steps) > 1 else ""
    ours = next((p for p in usable if p.law == "ours"), None)
    if ours is not None and ours.interval is not None:
        low, high = ours.interval
        beyond = "" if ours.applies else ", outside the sizes that were measured"
        expect = f"By our runs expect induction heads at step {ours.steps:,.0f} ({low:,.0f} to {high:,.0f}){beyond}"
        return f"{expect}; {apart}." if apart else f"{expect}."
    if apart:
        return f"Expect induction heads between steps {steps[0]:,.0f} and {steps[-1]:,.0f}: {apart}."
    caution = "" if usable[0].applies else ", by a law that was not stated for such text"
    return f"Only {usable[0].law} give a number of steps: {steps[0]:,.0f}{caution}."
