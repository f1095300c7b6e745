"""The tutorial for users of TFLite prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

import models
from pages import assert_printed


@pytest.mark.models
def test_the_tutorial_prints_what_it_says(tmp_path: Path, bless: bool) -> None:
    for name in ("open_alexa", "open_melspectrogram"):
        models.tflite_path(name)
    (tmp_path / ".models").symlink_to(models.MODELS)
    assert_printed(models.ROOT / "docs" / "tutorial-tflite.md", tmp_path, bless)
