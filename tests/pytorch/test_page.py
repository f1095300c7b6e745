"""The page on PyTorch is a program that prints what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pages import with_outputs

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_page_on_pytorch_prints_what_it_says(tmp_path: Path, bless: bool) -> None:
    page = ROOT / "docs" / "pytorch.md"
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "pages.py"), str(page)],
        cwd=tmp_path,
        env={**os.environ, "ALPENGLOW_CACHE": str(tmp_path)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    outputs = json.loads(done.stdout.splitlines()[-1])
    actual = page.read_text()
    expected = with_outputs(actual, outputs)
    if bless:
        page.write_text(expected)
        actual = expected

    assert expected == actual
    assert any(outputs)
