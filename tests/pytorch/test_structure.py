"""Modules are called as they were traced: with dicts, objects, keywords, and what is no tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import alpenglow as ag
from alpenglow.base.errors import FeedError, ModelError, OptionError


@dataclass
class Pair:
    a: torch.Tensor
    b: torch.Tensor


torch.export.register_dataclass(Pair, serialized_type_name="tests.Pair")


class Nested(torch.nn.Module):
    def forward(
        self, x: torch.Tensor, pair: Pair, times: int = 2, *, more: Any = None, flag: bool = True
    ) -> Any:
        y = x + pair.a * times if flag else x
        return {"sum": y, "rest": (pair.b, [x * more["k"]])}, None, 3


X, A, B, K = (np.arange(3, dtype=np.float32) + i for i in range(4))
ARGS = (torch.from_numpy(X), Pair(torch.from_numpy(A), torch.from_numpy(B)))
KWARGS = {"more": {"k": torch.from_numpy(K)}, "flag": True}


def called(exe: Any) -> Any:
    return exe(X, Pair(A, B), more={"k": K}, flag=True)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def exe() -> Any:
    return ag.compile(Nested(), args=ARGS, kwargs=KWARGS)


def test_results_are_as_the_module_returns_them(exe: Any) -> None:
    first, none, three = called(exe)

    np.testing.assert_array_equal(first["sum"], X + 2 * A)
    np.testing.assert_array_equal(first["rest"][0], B)
    np.testing.assert_array_equal(first["rest"][1][0], X * K)
    assert none is None and three == 3


def test_inputs_and_outputs_also_have_flat_names(exe: Any) -> None:
    results = exe.run({"x": X, "pair_a": A, "pair_b": B, "more_k": K})

    assert list(results) == ["output_0_sum", "output_0_rest_0", "output_0_rest_1_0"]
    np.testing.assert_array_equal(results["output_0_sum"], X + 2 * A)


def test_an_archive_is_called_the_same_way(exe: Any, tmp_path: Path) -> None:
    exe.save(tmp_path / "m.ago")
    (first, *_) = called(ag.open(tmp_path / "m.ago"))

    np.testing.assert_array_equal(first["sum"], X + 2 * A)


@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ((X,), {}, "argument 'pair' is missing"),
        ((X, Pair(A, B), 3), {"more": {"k": K}}, "got 3 arguments"),  # type: ignore[arg-type]
        ((X, Pair(A, B)), {"more": {"j": K}}, "expected a dict with k"),  # type: ignore[arg-type]
        ((X, Pair(A, B)), {"more": {"k": K}, "flag": False}, "flag is False"),  # type: ignore[arg-type]
        ((X, A), {"more": {"k": K}}, "has no attribute 'a'"),
        ((X, Pair(A, B)), {"less": 1}, "no parameter 'less'"),  # type: ignore[arg-type]
    ],
)
def test_a_call_of_another_form_is_refused(
    exe: Any, args: Any, kwargs: Any, message: str
) -> None:  # fmt: skip
    with pytest.raises(FeedError, match=message):
        exe(*args, **kwargs)


def test_a_module_without_example_inputs_is_refused() -> None:
    with pytest.raises(ModelError, match=r"args=\(x,\)"):
        ag.compile(Nested())


def test_what_torch_cannot_trace_is_said_with_the_line() -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(ModelError, match=r"cannot trace Branching, at .*test_structure.py:\d+"):
        ag.compile(Branching(), args=(torch.ones(2),))


def test_what_is_traced_already_takes_no_arguments() -> None:
    program = torch.export.export(Nested(), ARGS, KWARGS)
    with pytest.raises(OptionError, match="ExportedProgram"):
        ag.compile(program, args=ARGS)
