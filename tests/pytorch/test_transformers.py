"""Networks of transformers, exported, equal eager: a sample of `families`.

tools/models_torch.py --family transformers       runs all of them
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES, TEXT, tokens
from torch.utils import _pytree as pytree

import alpenglow as ag

OPEN = ["llama", "mpt"]
"""Masks of any length, and lengths that are the larger of two."""

WHOLE = ["bert", "gpt2", "t5", "whisper", "swin", "detr", "clip", "wav2vec2", "mamba",
         "mixtral"]  # fmt: skip


def exported(name: str, is_open: bool) -> tuple[Any, dict[str, Any], torch.export.ExportedProgram]:
    module, inputs = FAMILIES[name]()
    auto = torch.export.Dim.AUTO
    shapes = {k: dict.fromkeys(range(v.dim()), auto) for k, v in inputs.items()}
    with torch.no_grad():
        program = torch.export.export(
            module, (), inputs, dynamic_shapes=shapes if is_open else None
        )
    return module, inputs, program


def assert_equal(exe: ag.Executable, module: Any, inputs: dict[str, Any]) -> None:
    with torch.no_grad():
        leaves = pytree.tree_leaves(module(**inputs))
    expected = [x.numpy() for x in leaves if isinstance(x, torch.Tensor)]
    actual = pytree.tree_leaves(exe(**{k: v.numpy() for k, v in inputs.items()}))
    actual = [x for x in actual if isinstance(x, np.ndarray)]

    assert len(expected) == len(actual)
    for e, a in zip(expected, actual, strict=True):
        assert (e.shape, e.dtype) == (a.shape, a.dtype)
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WHOLE)
def test_a_network_equals_eager(name: str) -> None:
    module, inputs, program = exported(name, is_open=False)

    assert_equal(ag.compile(program, "interpreter"), module, inputs)


@pytest.mark.parametrize("name", OPEN)
def test_a_network_of_any_batch_and_length_equals_eager(name: str) -> None:
    module, inputs, program = exported(name, is_open=True)
    graph = ag.load(program)
    exe = ag.compile(graph, "cpu" if name == "llama" else "interpreter")

    assert isinstance(graph, ag.Graph)
    assert name in TEXT
    for rows, length in ((2, 7), (3, 20)):
        fed = {"input_ids": tokens(rows, length)}
        if "attention_mask" in inputs:
            fed["attention_mask"] = (torch.arange(length) < length - 2).long().expand(rows, length)
        assert_equal(exe, module, fed)


def test_the_page_generates_as_it_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
    program = re.search(r"```py\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert program is not None
    with redirect_stdout(out := io.StringIO()):
        exec(program[1], {})

    assert out.getvalue() == program[2]
