"""The tutorial for users of JAX prints what it says."""

from __future__ import annotations

from pathlib import Path

import models
from pages import assert_printed


def test_the_tutorial_prints_what_it_says(tmp_path: Path, bless: bool) -> None:
    assert_printed(models.ROOT / "docs" / "tutorial-jax.md", tmp_path, bless)
