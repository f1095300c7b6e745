"""`make release` checks the version and finds links that a package index cannot resolve."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from release import ReleaseError, check_version, relative_links


def test_the_changelog_begins_with_the_version() -> None:
    assert check_version()


@pytest.mark.parametrize("head", ["## [0.2.0] - 2026-12-01\n\n## [0.1.0]\n", "no version\n"])
def test_another_version_is_refused(tmp_path: Path, head: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{head}")

    with pytest.raises(ReleaseError, match=r"expected 0\.1\.0 of pyproject\.toml"):
        check_version(tmp_path)


def test_links_to_files_are_relative() -> None:
    page = "[a](docs/a.md) [b](https://example.org) [c](#here) [a](docs/a.md)"

    assert relative_links(page) == ["docs/a.md"]
