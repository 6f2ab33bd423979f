"""The notebooks under examples/ run from top to bottom and show what their words promise."""

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))
#: Cells that show a picture, by themselves or in the HTML of an object. A forecast of what has happened has none.
PICTURES = {"figure_and_law.ipynb": 2, "own_task.ipynb": 3, "stuck_run.ipynb": 3}


def test_the_committed_notebooks_have_no_outputs():
    nbformat = pytest.importorskip("nbformat")
    assert set(PICTURES) == set(NOTEBOOKS)
    for name in NOTEBOOKS:
        notebook = nbformat.read(EXAMPLES / name, as_version=4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert cells
        assert all(cell.outputs == [] and cell.execution_count is None for cell in cells), name


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out.data for cell in notebook.cells for out in cell.get("outputs", []) if "data" in out]
    pictures = ["image/png" in data or "data:image/png" in data.get("text/html", "") for data in shown]
    assert sum(pictures) == PICTURES[name]
