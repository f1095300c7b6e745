"""Run one example: a script, or the code cells of a notebook, in order, in one namespace.

`python tests/examples/example_runs.py FILE` writes as JSON what each cell prints; a script is one
cell.  Notebooks need no Jupyter here.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

VARIES = "varies"
"""The tag of a cell whose output differs between runs, so that no test compares it."""


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the code cells of a notebook, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def sources(path: Path) -> list[str]:
    """Return the code of a script, or of each code cell of a notebook."""
    if path.suffix == ".py":
        return [path.read_text()]
    return ["".join(cell["source"]) for cell in code_cells(json.loads(path.read_text()))]


def printed(path: Path) -> Iterator[str]:
    """Yield the text that each cell prints."""
    scope: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    for number, source in enumerate(sources(path), 1):
        name = str(path) if path.suffix == ".py" else f"{path}, code cell {number}"
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(source, name, "exec"), scope)
        yield out.getvalue()


if __name__ == "__main__":
    json.dump(list(printed(Path(sys.argv[1]))), sys.stdout)
