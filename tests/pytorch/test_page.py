"""The pages that need PyTorch are programs that print what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

import models
from pages import assert_printed

MODELS = pytest.mark.models


@pytest.mark.parametrize(
    "name", ["pytorch", "tutorial-pytorch", pytest.param("training-examples", marks=MODELS)]
)
def test_a_page_prints_what_it_says(name: str, tmp_path: Path, bless: bool) -> None:
    if name == "training-examples":
        (tmp_path / ".models").symlink_to(models.MODELS)
    assert_printed(models.ROOT / "docs" / f"{name}.md", tmp_path, bless)
