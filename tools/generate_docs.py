"""Write the tables of README and docs/ from results/ and from the command itself, between markers in the Markdown.

    <!-- claims: fig1c fig2-left:2 -->    paper and ours, a row a claim, from results/NAME.json; the first two of one
    <!-- figure: fig1c -->               its picture and all its claims, or that it has not been run and what it takes
    <!-- claims: forecast/cannot -->      those of its claims that are about "cannot"
    <!-- overview: forecast -->           what the figure says in short of results/NAME.csv
    <!-- overview: forecast:brief -->     the same by another function of the figure's file
    <!-- overview: schedule/none|schedule --> only the rows that match; `costs` takes such a pattern too
    <!-- table: fit-grids figure,grid --> chosen columns of results/NAME.csv
    <!-- verdicts: all -->                how many claims of all figures agree with the two papers, and how many of
                                         other people's laws hold on text
    <!-- verdicts: papers -->             the same as a table, a row a paper
    <!-- catalogue: emergence -->         the figures of a paper, or `ours`, with links to their pages
    <!-- gallery: emergence -->           the same as small pictures
    <!-- about: fig1c -->                 what the figure shows, its setting, its state, and the way back to its gallery
    <!-- settings: all -->                how many figures have the published setting, and which are complete
    <!-- provenance: fig1c -->            commit, date and machine of that result
    <!-- options: predict -->             the command's arguments and options
    <!-- output: forecast run.csv -->     a command and what it prints
    <!-- printed: quickstart -->         what examples/quickstart.py printed, from results/quickstart.txt
    <!-- costs: paper -->                 what `unstuck figures --cost` says of a profile
    <!-- end -->

Links in a block are relative to docs/; `regenerated` makes them relative to the page. The tool also writes
src/unstuck/papers/costs.csv, what all figures cost. `--check` writes nothing and fails if a file is not up to date.
"""

import contextlib
import csv
import io
import json
import os.path
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)([^)\s]*)\)")  # a relative one: the file, and the anchor in it
MOST_ROWS = 50  # of a figure's numbers that are shown at once: some three screens
BLOCK = re.compile(r"<!-- (\w+): ([^>]*?) -->\n.*?<!-- end -->", re.DOTALL)


def rows_to_markdown(header: list[str], rows: list[list[str]]) -> str:
    def cells(row: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"

    return "\n".join([cells(header), "|" + "---|" * len(header), *map(cells, rows)])


def matching(rows: list[list[str]], pattern: str) -> list[list[str]]:
    """The rows whose first two cells match; an empty first cell repeats the one above it."""
    kept, first = [], ""
    for row in rows:
        first = row[0] or first
        if re.search(pattern, " ".join([first, row[1]])):
            kept.append([first, *row[1:]])
    return kept if pattern else rows


def number(value: Any) -> str:
    if value is None or value == "":
        return "–"
    try:
        x = float(value)
    except ValueError:
        return str(value)
    return str(value) if isinstance(value, int) or str(value).isdigit() else f"{x:.4g}"


def claims(names: str) -> str:
    rows = []
    for word in names.split():
        name, first, about = re.fullmatch(r"([^:/]+)(?::(\d+))?(?:/(\S+))?", word).groups()  # type: ignore[union-attr]
        result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        wanted = [claim for claim in result["claims"] if (about or "") in claim["quantity"]]
        for i, claim in enumerate(wanted[: int(first) if first else None]):
            ours = number(claim["ours"]) + (f" ({claim['note']})" if claim["note"] else "")
            rows.append([name if i == 0 else "", claim["quantity"], number(claim["paper"]), ours, claim["verdict"]])
    return rows_to_markdown(["figure", "quantity", "paper", "ours", "verdict"], rows)


def figure(form: str) -> str:
    """A picture with its claims; with `name:3`, with the first three."""
    name = form.strip().partition(":")[0]
    if not (RESULTS / f"{name}.json").is_file():
        from unstuck.papers.figure import load
        from unstuck.papers.lab import plan

        jobs = plan(load(name), "cpu")
        hours = sum(job.seconds for job in jobs) / 3600
        return f"*Not run yet: {sum(job.count for job in jobs)} run(s), {hours:.1f} core-hours (results/TODO.md).*"
    return f"![{name}](../results/{name}.png)\n\n{folded(claims(form.strip()))}"


def folded(table: str) -> str:
    """A table that is longer than a page is opened by a click."""
    rows = table.count("\n") - 1
    if rows <= MOST_ROWS:
        return table
    return f"<details markdown>\n<summary>All {rows} numbers</summary>\n\n{table}\n\n</details>"


def settings(_: str) -> str:
    """The papers' figures by setting; complete where all runs of the profile are in."""
    from unstuck.papers.catalogue import entries
    from unstuck.papers.state import stored_state

    rows, words = [], {"published": "as published", "inferred": "as published, partly inferred"}
    papers = [entry for entry in entries().values() if not entry.ours]
    for setting in ("published", "inferred", "smaller grid"):
        mine = [entry for entry in papers if entry.setting == setting]
        states = [stored_state(entry.name, RESULTS)["state"] for entry in mine]
        done = [state for state in states if state == "complete"]
        rows.append([words.get(setting, setting), str(len(mine)), str(len(done))])
    total = ["all", str(len(papers)), str(sum(int(row[2]) for row in rows))]
    return rows_to_markdown(["setting", "figures and panels", "complete"], [*rows, total])


def overview(name: str) -> str:
    import pandas as pd

    from unstuck.papers.figure import load

    name, _, pattern = name.strip().partition("/")
    name, _, function = name.partition(":")
    short = getattr(load(name), function or "overview")(pd.read_csv(RESULTS / f"{name}.csv"))
    return rows_to_markdown(list(short), matching(short.astype(str).to_numpy().tolist(), pattern))


def stored_verdicts(name: str) -> Counter[str]:
    path = RESULTS / f"{name}.json"
    result = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return Counter(claim["verdict"] for claim in result.get("claims", []))


def verdicts(form: str) -> str:
    if form.strip() == "papers":
        return verdicts_by_paper()
    from unstuck.papers.catalogue import entries

    on_text = {entry.name for entry in entries().values() if entry.on_text}
    stored = {path.stem: stored_verdicts(path.stem) for path in sorted(RESULTS.glob("*.json"))}
    found = sum((counts for name, counts in stored.items() if name not in on_text), Counter())
    others = sum((counts for name, counts in stored.items() if name in on_text), Counter())
    papers = (
        f"{found['agrees']} numbers agree with the papers', {found['differs']} differ, "
        f"{found['beside']} are shown beside the papers' without a verdict, and {found['new']} are new."
    )
    return f"{papers} {_laws_on_text(others, len(on_text & stored.keys()), len(on_text))}"


def _laws_on_text(found: Counter[str], run: int, figures: int) -> str:
    """A sentence on published laws that are tested on text, each exponent and event for itself."""
    if not run:
        return f"Published laws of when induction heads form on text are tested by {figures} more figures, not run yet."
    return (
        f"Published laws of when induction heads form were tested on text ({run} of {figures} figures run), by "
        f"exponent and event: {found['agrees']} hold, {found['differs']} do not or hold with another exponent, "
        f"{found['beside']} numbers stand beside without a verdict."
    )


VERDICTS = ("agrees", "differs", "beside", "new")
PAPERS = {
    "emergence": "paper 1: Zucchet et al. 2025",
    "incremental": "paper 2: Yüksel et al. 2026",
    "ours": "our own figures",
    "text": "our own figures: laws of others, on text",
}


def figures_of(*papers: str) -> list[tuple[Any, str | None]]:
    """The figures of a paper (`emergence`, `incremental`), our own, or those on text, each with what has been run."""
    from unstuck.papers.catalogue import entries, is_available
    from unstuck.papers.state import stored_state

    def kind(entry: Any) -> str:
        return "text" if entry.on_text else "ours" if entry.ours else entry.paper

    mine = [e for e in entries().values() if kind(e) in papers and is_available(e.name)]
    return [(e, stored_state(e.name, RESULTS)["state"]) for e in mine]


def verdicts_by_paper() -> str:
    rows = []
    for paper, words in PAPERS.items():
        mine = figures_of(paper)
        found = sum((stored_verdicts(entry.name) for entry, _ in mine), Counter())
        complete = sum(state == "complete" for _, state in mine)
        rows.append([words, str(len(mine)), str(complete), *(str(found[v]) for v in VERDICTS)])
    return rows_to_markdown(["figures of", "panels", "complete", *VERDICTS], rows)


#: The gallery of a kind of figure: its page, and its name in a link.
GALLERIES = {
    "emergence": ("figures-paper1.md", "Figures of paper 1"),
    "incremental": ("figures-paper2.md", "Figures of paper 2"),
    "ours": ("figures-ours.md", "Figures of our own"),
}
COLUMNS = 3  # of pictures in a gallery: each is then legible on a laptop


def shown_in(gallery: str) -> list[tuple[Any, str | None]]:
    wanted = gallery.strip()
    return figures_of(*(("ours", "text") if wanted == "ours" else (wanted,)))


def catalogue(gallery: str) -> str:
    rows = []
    for entry, state in shown_in(gallery):
        found = stored_verdicts(entry.name)
        said = ", ".join(f"{v} {found[v]}" for v in VERDICTS if found[v])
        rows.append([f"[{entry.name}](figures/{entry.name}.md)", entry.shows, entry.setting, str(state), said or "–"])
    return rows_to_markdown(["figure", "shows", "setting", "state", "verdicts"], rows)


def gallery(name: str) -> str:
    """Pictures in rows of three; figures without a picture are in the catalogue only."""
    cells = []
    for entry, state in shown_in(name):
        page, picture = f"figures/{entry.name}.md", f"{entry.name}.png"
        if (RESULTS / picture).is_file():
            words = f"**[{entry.name}]({page})**<br>{entry.shows}<br>*{state}*"
            cells.append(f"[![{entry.name}](../results/{picture})]({page})<br>{words}")
    cells += [""] * (-len(cells) % COLUMNS)
    rows = [cells[i : i + COLUMNS] for i in range(0, len(cells), COLUMNS)]
    return rows_to_markdown([" "] * COLUMNS, rows)


def about(name: str) -> str:
    from unstuck.papers.catalogue import entries
    from unstuck.papers.state import stored_state

    entry = entries()[name.strip()]
    page, words = GALLERIES["ours" if entry.ours else entry.paper]
    setting = "not in the papers" if entry.ours else f"setting: {entry.setting}"
    state = stored_state(entry.name, RESULTS)["state"]
    shows = entry.shows[0].upper() + entry.shows[1:]
    end = "" if shows.endswith("?") else "."
    return f"**{shows}{end}** *{setting}; {state}.* Draw it: `unstuck reproduce {entry.name}`. [{words}]({page})."


def table(words: str) -> str:
    name, _, columns = words.strip().partition(" ")
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as f:
        rows = [[number(row[c]) for c in columns.split(",")] for row in csv.DictReader(f)]
    return rows_to_markdown(columns.split(","), rows)


def provenance(name: str) -> str:
    p = json.loads((RESULTS / f"{name.strip()}.json").read_text(encoding="utf-8"))["provenance"]
    machine = f"{p['machine']['cpu']}, {p['machine']['cores']} cores"
    return f"*Commit {p['commit']}, {p['date']}, {machine}, Python {p['python']}.*"


def options(name: str) -> str:
    from unstuck.cli import load

    rows = []
    for p in load(name.strip()).params:
        if getattr(p, "hidden", False):
            continue
        given = p.default
        if p.param_type_name == "argument":
            rows.append([f"`{p.metavar}`", "", p.help or ""])
        else:
            word = ", ".join(f"`{o}`" for o in p.opts)
            value = f" `{p.metavar}`" if p.metavar else ""
            default = "required" if p.required else "" if given is None or p.is_flag else str(given)
            rows.append([word + value, default, p.help or ""])
    return rows_to_markdown(["argument or option", "default", "meaning"], rows)


def output(command: str) -> str:
    from unstuck.cli import main as unstuck

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), contextlib.chdir(ROOT):
        unstuck(shlex.split(command))
    return f"```console\n$ unstuck {command}\n{printed.getvalue().strip()}\n```"


def printed(name: str) -> str:
    """What a program of examples/ printed when it was last run: results/NAME.txt."""
    text = (RESULTS / f"{name.strip()}.txt").read_text(encoding="utf-8").rstrip()
    return f"```text\n{text}\n```"


def costs(words: str) -> str:
    from unstuck.papers.cost_table import stored_costs
    from unstuck.runner.hardware import assumptions

    rows: list[list[str]] = []
    profile, _, pattern = words.strip().partition("/")
    for row in stored_costs().values():
        if row.profile == profile and row.is_trained:  # theory: seconds on any machine
            sizes = [f"{row.runs:,}", f"{row.steps:,}", f"{row.flops:.1e}"]
            rows.append([row.figure, *sizes, f"{row.cpu_hours:,.3g}", f"{row.gpu_hours:,.2g}"])
    head = ["figure", "runs", "steps", "operations", "hours on a core", f"hours on an {assumptions()['gpu']}"]
    return rows_to_markdown(head, matching(rows, pattern)) + f"\n\n{assumptions()['in words']}"


def cost_table() -> str:
    """The costs of all figures in all profiles, computed from their runs."""
    from unstuck.papers.catalogue import PROFILES
    from unstuck.papers.cost_table import as_csv
    from unstuck.papers.costs import figure_costs

    return as_csv(row for profile in PROFILES for row in figure_costs(profile))


WRITERS = {
    "claims": claims,
    "figure": figure,
    "settings": settings,
    "overview": overview,
    "table": table,
    "verdicts": verdicts,
    "catalogue": catalogue,
    "gallery": gallery,
    "about": about,
    "provenance": provenance,
    "options": options,
    "output": output,
    "printed": printed,
    "costs": costs,
}


def from_page(block: str, page: Path) -> str:
    """Links that are relative to docs/, made relative to a page."""

    def moved(match: re.Match[str]) -> str:
        target, anchor = match.groups()
        return f"]({os.path.relpath(DOCS / target, page.parent).replace(os.sep, '/')}{anchor})"

    return LINK.sub(moved, block)


def regenerated(text: str, page: Path) -> str:
    def fill(match: re.Match[str]) -> str:
        kind, words = match.groups()
        return f"<!-- {kind}: {words} -->\n{from_page(WRITERS[kind](words), page)}\n<!-- end -->"

    return BLOCK.sub(fill, text)


def main(check: bool = False) -> int:
    from unstuck.papers.cost_table import FILE

    stale = []
    writers: dict[Path, Callable[[str, Path], str]] = {FILE: lambda *_: cost_table()} | dict.fromkeys(
        PAGES, regenerated
    )
    for path, write in writers.items():  # the costs first, since pages quote them
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = write(old, path)
        if new != old:
            stale.append(path.name)
            if not check:
                path.write_text(new, encoding="utf-8")
    if stale:
        print(("not up to date: " if check else "rewritten: ") + ", ".join(stale))
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
