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
        ((X, A), {"more": {"k": K}}, "expected an attribute 'a'"),
        ((X, Pair(A, B)), {"less": 1}, "got parameter 'less'"),  # type: ignore[arg-type]
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


class Remembering(torch.nn.Module):
    """Attention over rows that a dict hands on, as a decoder is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.key = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, past: dict[str, torch.Tensor], scale: Any) -> Any:
        keys = torch.cat([past["k"], self.key(x) * scale["s"]], 1)
        return {"y": torch.softmax(x @ keys.mT, -1) @ keys}, {"k": keys}


ROWS = {1: torch.export.Dim("p", min=0, max=99)}
GROWING = {"x": None, "past": {"k": ROWS}, "scale": {"s": None}}


def remembering() -> tuple[Any, ag.Graph]:
    torch.manual_seed(0)
    module = Remembering().eval()
    args = torch.ones(1, 3, 16), {"k": torch.ones(1, 4, 16)}, {"s": torch.tensor(2.0)}
    graph = ag.load(module, args=args, dynamic_shapes=GROWING)
    assert isinstance(graph, ag.Graph)
    return module, graph


def test_what_is_profiled_and_quantised_is_called_as_before() -> None:
    module, graph = remembering()
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal((1, n, 16), np.float32) for n in (3, 4)]
    samples = [{"x": feeds[0], "past_k": feeds[1], "scale_s": np.float32(2)}]
    profile = ag.profile_ranges(graph, samples)
    with torch.no_grad():
        x, k = map(torch.from_numpy, feeds)
        expected = module(x, {"k": k}, {"s": torch.tensor(2.0)})[0]["y"]

    exe = ag.compile(ag.quantize(graph, profile))
    actual = exe(feeds[0], {"k": feeds[1]}, {"s": np.float32(2)})[0]["y"]

    np.testing.assert_allclose(actual, expected, atol=0.1)


@pytest.mark.parametrize("lasting", [False, True])
def test_a_session_is_called_as_the_module_without_what_it_remembers(lasting: bool) -> None:
    module, graph = remembering()
    exe = ag.compile(graph, state={"past_k": "output_1_k"})
    scale = {"s": np.float32(2)}
    session = exe.session(length=16, inputs={"scale_s": scale["s"]} if lasting else None)
    past = {"k": torch.zeros(1, 0, 16)}

    for step in range(3):
        x = torch.full((1, 3, 16), 0.1 * step)
        with torch.no_grad():
            expected, past = module(x, past, {"s": torch.tensor(2.0)})
        actual = session(x.numpy()) if lasting else session(x.numpy(), scale)
        np.testing.assert_allclose(actual["y"], expected["y"], rtol=1e-4, atol=1e-5)
