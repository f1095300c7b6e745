"""The reading order in docs/reading.md names files that exist and that a compilation runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import call_trace

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "alpenglow"
PAGE = (ROOT / "docs" / "reading.md").read_text()


def rows(heading: str, begin: str) -> list[str]:
    """Return the names in backticks in what follows `begin` on the lines of a section."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    lines = re.findall(rf"^{begin}(`\S+`(?:, `\S+`)*)", section, re.MULTILINE)
    return [name for line in lines for name in re.findall(r"`(\S+)`", line)]


def languages() -> list[str]:
    return rows("Eight files .*?", r"\d\. ")


def road() -> list[str]:
    return rows("Twenty-four files .*?", r"\| ")


def skipped() -> tuple[str, ...]:
    return tuple(f"{folder}/" for folder in rows("The half .*?", r"\| "))


@pytest.fixture(scope="module")
def ran() -> Mapping[str, int]:
    """Return the lines of the functions that a compilation of relu(x @ w) runs, by file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALPENGLOW_CACHE", "off")
        patch.delenv("ALPENGLOW_CHECK", raising=False)
        files = call_trace.files_of(call_trace.compile_trace())
    return {file: lines for file, (lines, _) in files.items()}


def test_the_lists_are_as_long_as_the_page_says() -> None:
    assert (len(languages()), len(road())) == (8, 24)
    assert len({*languages(), *road()}) == 32


def test_every_file_and_folder_on_the_page_exists() -> None:
    named = {*re.findall(r"`(\w+(?:/\w+)+(?:\.py)?)`", PAGE), *skipped()}
    missing = [n for n in named if not (PACKAGE / n).exists() and not (ROOT / n).exists()]

    assert missing == []


def test_a_compilation_runs_each_file_of_the_road(ran: Mapping[str, int]) -> None:
    assert [file for file in road() if file not in ran] == []


def test_the_listed_files_hold_half_of_the_lines_that_run(ran: Mapping[str, int]) -> None:
    listed = sum(ran.get(file, 0) for file in (*languages(), *road()))

    assert listed / sum(ran.values()) > 0.5


def test_what_may_be_skipped_is_nearly_half_and_hardly_runs(ran: Mapping[str, int]) -> None:
    sizes = {
        path.relative_to(PACKAGE).as_posix(): path.read_bytes().count(b"\n")
        for path in PACKAGE.rglob("*.py")
    }
    folders = skipped()
    size = sum(lines for file, lines in sizes.items() if file.startswith(folders))
    running = sum(lines for file, lines in ran.items() if file.startswith(folders))

    assert 0.45 < size / sum(sizes.values()) < 0.55
    assert running / sum(ran.values()) < 0.01


def test_the_trace_of_a_converter_holds_its_calls_alone() -> None:
    converted = call_trace.files_of(call_trace.convert_trace(call_trace.load_trace()))

    assert "frontends/stablehlo/convert/contraction.py" in converted
    assert "frontends/stablehlo/loading.py" not in converted
