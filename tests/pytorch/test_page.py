"""The pages that need PyTorch are programs that print what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import models
from pages import with_outputs

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = pytest.mark.models


@pytest.mark.parametrize("name", ["pytorch", pytest.param("training-examples", marks=MODELS)])
def test_a_page_prints_what_it_says(name: str, tmp_path: Path, bless: bool) -> None:
    page = ROOT / "docs" / f"{name}.md"
    if name == "training-examples":
        (tmp_path / ".models").symlink_to(models.MODELS)
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
