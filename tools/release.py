"""Build the distributions of a release, check them, and try the wheel outside of the checkout.

    python tools/release.py [--out .release]      (make release does it with its own tools)

It needs `build`, `twine` and `check-wheel-contents` in the environment that runs it.  Nothing is
uploaded.  The steps, each of which ends the run if it fails:

1. The version in `pyproject.toml` is the newest one in `CHANGELOG.md`.
2. The wheel and the sdist are built, the wheel from the sdist.
3. `twine check --strict` renders the README; `check-wheel-contents` reads the wheel.
4. The wheel is installed in an empty environment, which compiles, runs, saves and opens a model.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HEAD = re.compile(r"^## \[(?P<version>[^\]]+)\]", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#)(?P<target>[^)\s]+)\)")

TRIAL = """
import pathlib, sys, tempfile
import numpy as np
import alpenglow as ag

checkout = pathlib.Path(sys.argv[1])
assert not pathlib.Path(ag.__file__).is_relative_to(checkout / "src"), ag.__file__
g = ag.Graph("tiny")
x = ag.Expression(g, g.input("x", "f32[2,3]"))
w = np.arange(6, dtype=np.float32).reshape(3, 2)
g.output("y", ag.functions.relu(x @ w - 4.0).value)
x = np.ones((2, 3), np.float32)
exe = ag.compile(g)
with tempfile.TemporaryDirectory() as folder:
    exe.save(f"{folder}/tiny.ago")
    y = ag.open(f"{folder}/tiny.ago")(x)
assert np.array_equal(y, np.maximum(x @ w - 4, 0)) and np.array_equal(y, exe(x)), y
print(f"alpenglow {ag.__version__}: {exe}")
"""


class ReleaseError(Exception):
    """A check of the release that failed."""


def check_version(root: Path = ROOT) -> str:
    """Return the version of the release; pyproject.toml and CHANGELOG.md must agree on it."""
    version: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    head = HEAD.search((root / "CHANGELOG.md").read_text())
    newest = head["version"] if head else "missing"
    if newest != version:
        raise ReleaseError(
            f"CHANGELOG.md: the newest version is {newest}, expected {version} of pyproject.toml"
            f"\n  try: begin a section '## [{version}] - unreleased'"
        )
    return version


def relative_links(page: str) -> list[str]:
    """Return the targets of the links that a package index cannot resolve."""
    return sorted({link["target"] for link in LINK.finditer(page)})


def release(out: Path) -> None:
    """Build and check everything into `out`, which is emptied first."""
    version = check_version()
    say(f"version: {version}")
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    for path in (wheel, sdist):
        say(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    run(sys.executable, "-m", "check_wheel_contents", wheel)
    links = relative_links((ROOT / "README.md").read_text())
    say(f"README.md: {len(links)} relative links do not resolve on a package index")
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        python = Path(folder, "bin", "python")
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        run(python, "-I", "-c", TRIAL, ROOT, folder=folder)
        run(Path(folder, "bin", "alpenglow"), "--version", folder=folder)
    say(f"{out}: ready; nothing was uploaded")


def say(line: str) -> None:
    """Print a line before the output of the next command."""
    print(line, flush=True)


def run(*command: str | Path, folder: str | Path | None = None) -> None:
    """Run a command without `PYTHON*` and `ALPENGLOW_*`; raise ReleaseError if it fails."""
    settings = ("PYTHON", "ALPENGLOW_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    done = subprocess.run([*map(str, command)], cwd=folder, env=env, check=False)
    if done.returncode != 0:
        words = " ".join(map(str, command[:4]))
        raise ReleaseError(f"{words}: the exit status is {done.returncode}, expected 0")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / ".release")
    try:
        release(parser.parse_args().out.resolve())
    except ReleaseError as error:
        sys.exit(f"release: {error}")
