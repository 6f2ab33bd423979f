"""What `unstuck predict` prints."""

from typing import Any

from rich.text import Text

from unstuck.theory import Flow
from unstuck.view.console import console, new_table


def explain_prediction(setting: Flow, answer: dict[str, Any], *, never: bool, finish: float) -> None:
    out = console()
    s = setting
    sizes = f"T = {s.T}, d = {s.d}, B = {s.B}, p = {s.p!r}"
    out.print(Text.assemble((sizes, "bold"), f", {s.kind} flow, threshold {answer['threshold']:g}\n"))
    if answer["plateau"] is None:
        what = "The plateau never ends" if never else "No answer"
        out.print(Text.assemble((what, "bold"), f": {answer['reason']}.\n"))
    else:
        number = f"{answer['plateau']:,.6g}"
        meaning = "   time (steps × learning rate) for the test loss to fall"
        out.print(Text.assemble((f"Plateau: {number}", "bold"), meaning))
        out.print(f"         {'':{len(number)}}   from 0.5 to {answer['threshold']:g}, by integrating the flow\n")
    if answer["transformer"] is not None:
        _explain_transformer(answer["transformer"])
    rate = "√B" if s.kind == "exact" else "B"
    factor = " √(1 + p²(d-1))" if s.p > 0 else ""
    rows = [
        ("rate μ", answer["rate"], f"{rate}{factor} / (√d T), how fast the start is left"),
        ("√(π/2) / μ", answer["blow_up_time"], "blow-up time: the plateau for large T"),
        ("closed form", answer["estimate"], "the same with drag, finish and catching up"),
        (
            "escape time",
            answer["escape_time"],
            "arcsinh(ε d T² μ / B²) / 2μ, linearised (Eq. 6): not the plateau's length",
        ),
    ]
    table = new_table("", "", "")
    table.show_header = False
    for name, value, meaning in rows:
        table.add_row(name, "–" if value is None else f"{value:,.6g}", Text(meaning, "dim"))
    out.print(table)
    out.print(
        "\nAssumes gradient flow on the expected loss, uniform attention and W = 0 at the start, unit-norm columns"
        " of W*; the closed forms also T ≫ B. For SGD or gradient descent, divide by the learning rate.",
        style="dim",
    )
    if s.B > 1:
        other = "reduced" if s.kind == "exact" else "exact"
        out.print(f"With B > 1 the two flows differ (B⁻¹ or B⁻¹ᐟ²): compare --flow {other}.", style="dim")
    if s.B > 0.1 * s.T or finish > 0.1 * answer["blow_up_time"]:
        caution = "T/B is not large beside √d here, so trust the integrated plateau, not the closed forms."
        out.print(caution, style="dim")


def _explain_transformer(law: dict[str, Any]) -> None:
    """What the law of our Transformers expects; theory's time is of another model and has another unit."""
    out, steps = console(), f"{law['steps']:,.0f}"
    low, high = (f"{step:,.0f}" for step in law["interval"])
    about = f"   ({low} to {high} for {law['level']:.0%} of runs)"
    out.print(Text.assemble((f"A Transformer: {steps} steps", "bold"), about))
    for text in (f"{law['law']}, the law of {law['runs']} runs", law["setting"], *law["beyond"]):
        out.print(f"               {text}", style="dim")
    out.print()
