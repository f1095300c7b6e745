"""Digests of what front ends make: the same for the same models, others where a text is another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import models

sys.path.insert(0, str(models.ROOT / "tools"))

import graph_digests


def test_digests_are_written_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "before.txt")

    def run(command: str, only: str) -> int:
        monkeypatch.setattr(sys, "argv", ["graph_digests.py", command, file, "--only", only])
        return graph_digests.main()

    assert run("record", "onnx test_add") == 0
    assert run("compare", "onnx test_add") == 0
    path = tmp_path / "before.txt"
    first, second, *rest = path.read_text().splitlines()
    name, kind, digest = first.rsplit(" ", 2)
    path.write_text("\n".join([f"{name} {kind} {digest[::-1]}", *rest]))
    capsys.readouterr()

    assert run("compare", "onnx test_add") == 1
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [f"{name}: another text", f"{second.rsplit(' ', 2)[0]}: not here -> graph"]


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("onnx test_relu", "graph", ["relu"]),
        ("onnx test_loop11", "staged", ["while(", "graph @", "ends True"]),
        ("onnx test_optional_has_element_empty_optional_input", "staged", ["ends True"]),
        ("torch kept.pt2", "staged", ["graph @"]),
        ("torch words.pt2", "graph", ["embedding"]),
    ],
)
def test_a_text_tells_of_the_whole_model(name: str, kind: str, words: list[str]) -> None:
    (model,) = (m for m in graph_digests.models() if str(m) == name)

    found, text = graph_digests.text_of(model)

    assert found == kind
    assert [w for w in words if w not in text] == []
    assert graph_digests.text_of(model) == (found, text)


@pytest.mark.parametrize("words", [["text", "onnx nothing"], ["compare", "nothing.txt"]])
def test_an_unknown_model_or_file_is_named(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["graph_digests.py", *words])

    with pytest.raises(SystemExit):
        graph_digests.main()

    assert words[1] in capsys.readouterr().err
