"""Help has the options of a command before those that commands share; tables fit a terminal."""

from __future__ import annotations

import re

import pytest

from alpenglow.cli import COMMANDS, SECTIONS, output
from alpenglow.cli.help import RENAMED, Command
from command import alpenglow

ROWS = [("kernel", "computes"), ("conv", "one two three four five six seven"), ("add", "eight")]


def test_commands_are_listed_by_sections() -> None:
    printed = alpenglow("--help").stdout
    found = [line for line in printed.splitlines() if line.endswith(":")]
    assert found == ["Options:", *(f"{title}:" for title in SECTIONS)]
    for name in COMMANDS:
        assert re.search(rf"^  {name}  ", printed, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_own_options_come_before_shared_ones(name: str) -> None:
    printed = alpenglow(f"{name} --help").stdout
    titles = re.findall(r"^([A-Z][\w ]+):$", printed, re.MULTILINE)
    shared = [title for title in Command.shared if title in titles]
    assert [t for t in titles if t in ("Options", *Command.shared)] == ["Options", *shared]
    own = printed.partition("Options:")[2].partition(":\n\n")[0].partition("\n\n")[0]
    for title in shared[:2]:
        assert printed.count(f"\n{title}:\n") == 1
        assert title not in own
    assert ("--shapes" in printed) == ("--numerics" in printed) == ("Compilation" in titles)
    assert "--numerics" not in own


@pytest.mark.parametrize(("old", "name"), RENAMED.items())
def test_old_names_of_options_work_with_a_warning(old: str, name: str) -> None:
    line = "train missing.onnx --data ." if old in ("--held", "--of", "--rate") else (
        "bundle missing.onnx -o out"
    )  # fmt: skip
    given = [alpenglow(f"{line} {text}", 2) for text in (f"{old}=1", f"{old} 1", f"{name} 1")]
    warning = f"warning: {old} is deprecated; try: {name}\n"

    assert [r.stderr.count(warning) for r in given] == [1, 1, 0]
    assert len({r.stderr.replace(warning, "") for r in given}) == 1
    assert f"  {old} " not in alpenglow(f"{line.split()[0]} --help").stdout


def test_a_table_is_folded_on_a_narrow_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = output.table(ROWS)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    wide = output.table(ROWS)
    monkeypatch.setenv("COLUMNS", "24")
    narrow = output.table(ROWS)

    assert plain == wide and len(plain) == 3
    assert max(map(len, narrow)) <= 24
    assert " ".join(" ".join(narrow).split()).startswith("kernel computes conv one two")
    assert all(line.startswith("   ") for line in narrow[2:-1])


def test_lines_are_wrapped_between_words_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "  14 kernels take 42 µs, a run 20 µs"
    output.show({}, [line], as_json=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "24")
    output.show({}, [line], as_json=False)
    output.show({}, [line], as_json=False, wrap=False)

    assert capsys.readouterr().out.splitlines() == [
        line, "  14 kernels take 42 µs,", "    a run 20 µs", line,
    ]  # fmt: skip
