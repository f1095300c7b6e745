"""Plant mistakes in the converters of the front ends, one at a time, and see which the tests find.

    python -m tests.frontends.plant [--only WORDS] [--without-goldens]

For each mistake of `tests.frontends.planted` the tests of its front end run that `make test` runs,
until the first failure: the goldens of converters first, then test files that are called like the
module of the mistake, then the others.  They need neither PyTorch, JAX nor LiteRT.  Each mistake
has a process of its own, in which the module with the mistake is imported in place of the one on
disk; nothing is written.  Names of mistakes that nothing found end the output.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pkgutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from tests.frontends.goldens import names
from tests.frontends.planted import PLANTED
from tests.fuzz.mistakes import Mistake

FOLDER = Path(__file__).resolve().parent
MARKS = "not slow and not cross and not opencl and not torch"
"""Which tests `make test` runs."""

GOLDENS = FOLDER / "shared" / "test_converters.py"
BEFORE = ("alpenglow.ir", "alpenglow.ops", "alpenglow.kernel")
"""Packages that are imported once, for all mistakes: none of them imports a front end."""


class Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, whose source has a mistake."""

    def __init__(self, mistake: Mistake) -> None:
        self.name = "alpenglow." + mistake.file.removesuffix(".py").replace("/", ".")
        self.mistake = mistake

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        file = package() / self.mistake.file
        return importlib.util.spec_from_file_location(name, file, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        file = package() / self.mistake.file
        source = file.read_text(encoding="utf-8").replace(self.mistake.old, self.mistake.new)
        exec(compile(source, str(file), "exec"), module.__dict__)


def package() -> Path:
    """Return the folder of the package."""
    return Path(importlib.import_module("alpenglow").__path__[0])


class Failures:
    """A plugin of pytest that notes the first test that fails."""

    def __init__(self) -> None:
        self.first = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.first:
            self.first = report.nodeid.rpartition("/")[2]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.first:
            self.first = f"{report.nodeid} is not imported"


def found_by(mistake: Mistake, goldens: bool) -> str:
    """Return the test that fails with a mistake, or nothing; in a process of its own."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        with tempfile.TemporaryFile() as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            said = "the process died"
            try:
                said = failing(mistake, goldens)
            finally:
                os.write(writing, said.encode())
                os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def failing(mistake: Mistake, goldens: bool) -> str:
    """Return the first test that fails with a mistake, or nothing."""
    sys.meta_path.insert(0, Planted(mistake))
    *folders, module = mistake.file.removesuffix(".py").split("/")
    front_end = next(name for name in folders if (FOLDER / name).is_dir())
    words = set(module.removeprefix("convert_").split("_"))
    files = sorted((FOLDER / front_end).glob("test_*.py"),
                   key=lambda p: (-len(words & set(p.stem.split("_"))), p))  # fmt: skip
    listed = [str(p) for p in files]
    if goldens and names(front_end):
        listed.insert(0, f"{GOLDENS}::test_{front_end}")
    assert len(listed) > 1, f"{mistake.file}: no tests of {front_end}, and pytest would run all"
    for part in (listed[:1], listed[1:]):
        failures = Failures()
        pytest.main(["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", MARKS, *part],
                    [failures])  # fmt: skip
        if failures.first:
            return failures.first
    return ""


def import_before() -> None:
    """Import what no mistake is in, so that processes need not."""
    for name in BEFORE:
        root = importlib.import_module(name)
        for module in pkgutil.walk_packages(root.__path__, f"{name}."):
            importlib.import_module(module.name)
    assert not any(name.startswith("alpenglow.frontends") for name in sys.modules)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="mistakes with these words in file or name")
    parser.add_argument("--without-goldens", action="store_true", help="run the other tests alone")
    asked = parser.parse_args()
    chosen = [m for m in PLANTED if asked.only in m.file + m.name]
    import_before()
    missed = []
    for mistake in chosen:
        began = time.monotonic()
        test = found_by(mistake, not asked.without_goldens)
        where = f"{mistake.file.removeprefix('frontends/')}: {mistake.name}"
        print(f"{where}: {test or 'NOT FOUND'} ({time.monotonic() - began:.0f} s)", flush=True)
        if not test:
            missed.append(where)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} are found")
    for where in missed:
        print(f"not found: {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
