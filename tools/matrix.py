"""Run every feature on small models from every source, and write the page of what works.

    python tools/matrix.py                     # all cells, to docs/matrix.md
    python tools/matrix.py --sample            # a few cells; the exit code tells if one is wrong
    python tools/matrix.py --source JAX --feature train     # these cells, and no page

A cell is right (its results equal the interpreter's, or PyTorch's in eager), refused by an
error of `base.errors` that says what to do instead, not applicable, or wrong: other results,
another exception, or an error that says nothing of a way round.  Sources that need PyTorch, JAX or
fetched models are left out where these are not installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

import matrix_models
from alpenglow.base.errors import AlpenglowError
from matrix_features import VERBS
from matrix_subject import Inapplicable, Subject

PAGE = Path(__file__).parents[1] / "docs" / "matrix.md"

SAMPLE = ("compile", "save, open", "profile-ranges", "quantize", "truncate")
"""The features of the sample; they are run on the models that `matrix_models` calls small."""


@dataclass(frozen=True)
class Cell:
    """What came of a feature on a model: right, refused, n/a or wrong, and the words for it."""

    kind: str
    words: str = ""


Table = dict[str, dict[str, dict[str, Cell]]]
"""The cells by source, model and feature."""


def judged(subject: Subject, name: str) -> Cell:
    """Run a feature on a model."""
    try:
        _verbs(subject)[name](subject)
    except Inapplicable as why:
        return Cell("n/a", str(why))
    except AlpenglowError as error:
        words = " ".join(error.message.replace(f"{PAGE.parents[1]}/", "").split())
        if not error.hint:
            return Cell("WRONG", f"refused without a way round: {words}")
        return Cell("refused", f"{words}; try: {' '.join(error.hint.split())}")
    except AssertionError as error:
        return Cell("WRONG", " ".join(str(error).split())[:200])
    except Exception as error:
        return Cell("WRONG", " ".join(f"{type(error).__name__}: {error}".split())[:300])
    return Cell("right")


def _verbs(subject: Subject) -> dict[str, Callable[[Subject], None]]:
    """Return the features, as the source of a subject has them."""
    if not subject.model.in_place:
        return VERBS
    verbs: dict[str, Callable[[Subject], None]] = import_module("matrix_compiled").verbs()
    return verbs


def subjects(sample: bool, folder: Path) -> Iterator[Subject]:
    """Yield the models that can be made here."""
    for model in matrix_models.models(folder, everything=not sample):
        if not sample or model.is_small:
            place = folder / f"{model.source} {model.name}".replace(" ", "-")
            place.mkdir()
            yield Subject(model, place)


def page(table: Table) -> str:
    """Return the page: features by sources, then each model with what it is refused, and why."""
    features = list(next(iter(next(iter(table.values())).values())))
    lines = [f"| feature | {' | '.join(table)} |", "|---" * (len(table) + 1) + "|"]
    for feature in features:
        marks = [_mark([cells[feature] for cells in models.values()]) for models in table.values()]
        lines.append(f"| {feature} | {' | '.join(marks)} |")
    every = [c for models in table.values() for cells in models.values() for c in cells.values()]
    count = {kind: sum(c.kind == kind for c in every) for kind in ("right", "refused", "n/a")}
    applicable = len(every) - count["n/a"]
    share = 100 * count["right"] // applicable
    said = [f"Of {applicable} applicable cells {count['right']} are right ({share} %), and",
            f"{count['refused']} refused.  {count['n/a']} cells do not apply."]  # fmt: skip
    named = [f"- {source}: {', '.join(models)}" for source, models in table.items()]
    return "\n".join([*HEAD, "", *said, "", *lines, "", "## Models", "", *named, "", "## Refused",
                      "", *_refusals(table), "", "## Not applicable", "",
                      *_counted(every), ""])  # fmt: skip


def _mark(cells: Sequence[Cell]) -> str:
    """Return how many of the models of a source are right, of how many it applies to."""
    applicable = [c for c in cells if c.kind != "n/a"]
    right = sum(c.kind == "right" for c in applicable)
    if not applicable:
        return "n/a"
    wrong = sum(c.kind == "WRONG" for c in applicable)
    return f"{right}/{len(applicable)}{f' ({wrong} WRONG)' if wrong else ''}"


def _counted(cells: Sequence[Cell]) -> list[str]:
    """Return a line for each reason why features do not apply, with the number of cells."""
    numbers = Counter(c.words for c in cells if c.kind == "n/a")
    return [f"- {words} ({number})" for words, number in numbers.items()]


def _refusals(table: Table) -> list[str]:
    """Return lines for each error: its words, and which features of which models raise it."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for source, models in table.items():
        for name, cells in models.items():
            for feature, cell in cells.items():
                if cell.kind == "refused":
                    column = f"{source} {name}"
                    reasons.setdefault(cell.words, {}).setdefault(feature, []).append(column)
    lines = []
    for words, where in reasons.items():
        by_models: dict[str, list[str]] = {}
        for feature, columns in where.items():
            by_models.setdefault(", ".join(columns), []).append(feature)
        lines.append(f"- {words}")
        lines += [f"  ({columns}: {'; '.join(names)})" for columns, names in by_models.items()]
    return lines


HEAD = [
    "# Features by source of the model",
    "",
    "*Reference.*  `make matrix` (`tools/matrix.py`) writes this page.  Each feature is run on",
    "small models from each source.  A cell of the table is the number of models for which the",
    "feature is right, of the number of models to which it applies.  A feature is right if its",
    "results equal the interpreter's, or with `torch.compile` PyTorch's in eager.  The other",
    "models are refused by an error that says what to do instead; these errors are below the",
    "table.  A feature in backticks is a command.  Index: [index](index.md).",
]


def main() -> int:
    """Run the cells; return 1 if one is wrong."""
    options = _parser().parse_args()
    chosen = options.source or options.model or options.feature
    features = SAMPLE if options.sample else options.feature or list(VERBS)
    table = _kept(options.cells)
    with tempfile.TemporaryDirectory() as folder:
        for subject in subjects(options.sample, Path(folder)):
            source, name = subject.model.source, subject.model.name
            if source != (options.source or source) or name != (options.model or name):
                continue
            cells = table.setdefault(source, {}).setdefault(name, {})
            _run(subject, [f for f in features if options.feature or f not in cells], cells)
            if options.cells is not None:
                options.cells.write_text(json.dumps(table, default=asdict))
    if not options.sample and not chosen:
        PAGE.write_text(page(table), encoding="utf-8")
    every = [c for models in table.values() for cells in models.values() for c in cells.values()]
    return int(any(c.kind == "WRONG" for c in every))


def _run(subject: Subject, features: Sequence[str], cells: dict[str, Cell]) -> None:
    """Put the cells of a model into its column, and print each."""
    for feature in features:
        begin = time.monotonic()
        cell = cells[feature] = judged(subject, feature)
        seconds = time.monotonic() - begin
        column = f"{subject.model.source} {subject.model.name}"
        print(f"{column}: {feature}: {seconds:.1f} s, {cell.kind} {cell.words}", flush=True)


def _kept(file: Path | None) -> Table:
    """Return the cells that an earlier run wrote."""
    if file is None or not file.is_file():
        return {}
    return {
        source: {name: {f: Cell(**c) for f, c in cells.items()} for name, cells in models.items()}
        for source, models in json.loads(file.read_text()).items()
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", action="store_true", help="a few cells, and no page")
    parser.add_argument("--source", help="models of this source alone, and no page")
    parser.add_argument("--model", help="models of this name alone, and no page")
    parser.add_argument("--feature", action="append", help="this feature alone, and no page")
    parser.add_argument("--cells", type=Path, metavar="JSON",
                        help="keep cells in a file, and run those that are not in it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
