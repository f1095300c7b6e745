"""Models in parts as text: how one goes on behind the graph of a part reads back as it was."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result

import alpenglow as ag
from alpenglow.base.errors import ParseError, UnsupportedError
from alpenglow.cli import cli
from alpenglow.extras.strings.strings import StringSplit
from alpenglow.ir.staged import Apply, Loop, Scan, StagedModel
from alpenglow.ir.staged_text import Continuation, Unread, parse_continuation
from staged_cases import CASES

pytestmark = pytest.mark.usefixtures("loops_in_parts")


def staged(name: str) -> StagedModel:
    model = ag.load(CASES[name].model())
    assert isinstance(model, StagedModel), "the case depends on data"
    return model


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize("name", CASES)
def test_how_a_model_goes_on_reads_back(name: str) -> None:
    model = staged(name)
    assert model.first is not None
    text = str(Continuation.of(model.first))
    again = parse_continuation(text)

    assert str(again) == text
    assert again.needs == model.first.needs
    assert [(type(a), a.label, a.outputs) for a in again.actions] == [
        (type(a), a.label, a.outputs) for a in model.first.actions
    ]


def test_every_field_of_an_action_reads_back() -> None:
    body = Unread("a step")
    actions = (
        Apply("StringSplit 's'", StringSplit(" ", 2), ("x", ""), ("y", "")),
        Loop("l", body, "", "go on?", ("a", "b"), (), ("c", "d"), (("s", "t"),),
             (("p", "q"), ("r", "v"))),
        Scan("s", body, ("h",), ("x", "z"), ("w",), ("u", "o"), (0, 1, 2), (True, False, True),
             True, "n"),
        Scan("s", body, (), ("x",), (), ("o",), (0, 1), (False, False)),
    )  # fmt: skip
    given = Continuation(actions, ("k", "%1"), 3)
    again = parse_continuation(str(given))

    assert str(again) == str(given)
    for before, after in zip(actions, again.actions, strict=True):
        for field in before.__dataclass_fields__:
            if field != "body":
                assert getattr(before, field) == getattr(after, field)


@pytest.mark.parametrize(
    "line", ["%y = relu(%x) at r", "%y = string_split(%x)", "needs k", "rest few", "loop"]
)
def test_what_is_no_continuation_is_refused(line: str) -> None:
    with pytest.raises(ParseError):
        parse_continuation(f"then {{\n  {line}\n}}")


@pytest.mark.parametrize("stage", ["import", "lower", "fuse", "plan"])
def test_a_part_is_shown_and_read_at_every_stage(stage: str, tmp_path: Path) -> None:
    onnx.save(CASES["branches"].model(), tmp_path / "m.onnx")
    path, again = tmp_path / "part.txt", tmp_path / "again.txt"
    for model, text, bound in (
        (tmp_path / "m.onnx", path, ["--dim", "N=6"]), (path, again, [])
    ):  # fmt: skip
        done = run("show", str(model), *bound, "--after", stage, "-o", str(text))
        assert done.exit_code == 0, done.output

    assert path.read_text() == again.read_text()
    assert "then {" in path.read_text() and "needs" in path.read_text()


def test_a_text_of_a_part_is_not_run(tmp_path: Path) -> None:
    onnx.save(CASES["branches"].model(), tmp_path / "m.onnx")
    run("show", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "part.txt"))
    done = run("run", str(tmp_path / "part.txt"))

    assert isinstance(done.exception, UnsupportedError) or done.exit_code == 2
