"""Programs whose graphs depend on data: sizes and numbers read out of tensors, branches, loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import alpenglow as ag
from alpenglow.base.errors import FeedError, UnsupportedError
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.model import TorchModel, model_of
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan

OPEN = ({0: Dim.AUTO},)
Case = tuple[Callable[..., Any], Sequence[Any], Any, Sequence[Sequence[Any]]]


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def rows(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(seed))


def number(n: Any) -> torch.Tensor:
    return torch.tensor(n)


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(
        x.sum() > 0,
        lambda x: torch.cond(x[0, 0] > 2, lambda x: x * 2, lambda x: x.flip(0), (x,)),
        lambda x: x - 1,
        (x,),
    )


def doubled(x: torch.Tensor, n: torch.Tensor) -> Any:
    return while_loop(
        lambda i, y: (i < n) & (y.sum() < 100), lambda i, y: (i + 1, y * 2), (number(0), x)
    )


def counted(x: torch.Tensor) -> Any:
    return while_loop(lambda i, y: i < x.shape[0], lambda i, y: (i + 1, y * 2 + x), (0, x.clone()))


def summed(x: torch.Tensor) -> Any:
    return scan(lambda total, row: (total + row, total * row), x[0], x)


def steps(x: torch.Tensor, n: torch.Tensor) -> Any:
    """Two loops alike, of whose results one is not read."""
    _, a = while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + 1), (number(0), x))
    _, b = while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2), (number(0), x))
    return a, b


def swapped(x: torch.Tensor, n: torch.Tensor) -> Any:
    """A loop that is given one tensor twice, and a tensor that is a constant."""
    w = torch.eye(8) * 2
    return while_loop(
        lambda i, a, b: i < n, lambda i, a, b: (i + 1, b + 1, a @ w), (number(0), x, x.clone())
    )


def balanced(x: torch.Tensor, n: torch.Tensor) -> Any:
    def body(i: torch.Tensor, y: torch.Tensor) -> Any:
        return i + 1, torch.cond(y.sum() > 0, lambda y: y - 1, lambda y: y + 2, (y,))

    return while_loop(lambda i, y: i < n, body, (number(0), x))


def widened(x: torch.Tensor) -> Any:
    """A loop that reads a number made of extents in its condition and its body."""
    rows = x.shape[0]
    return while_loop(lambda i, y: i < rows * 2, lambda i, y: (i + 2, y + rows), (0, x.clone()))


def scaled(x: torch.Tensor) -> Any:
    rows = x.shape[0]
    return scan(lambda total, row: (total + row * rows, total * row), x[0], x)


def grown(x: torch.Tensor) -> Any:
    """A loop on what is of no known size."""
    return while_loop(
        lambda i, z: (z.sum() < 50) & (i < 20), lambda i, z: (i + 1, z * 1.5 + 0.1),
        (number(0), x[x > 0]),
    )  # fmt: skip


NANS = torch.tensor([float("nan"), 1.0, 2.0, 1.0, 1.0, float("nan")])
COUNTS = [(rows(3), number(n)) for n in (3, 0, 7)]

CASES: dict[str, Case] = {
    "slice to a number": (lambda x, n: x[: n.item()], (rows(4), number(2)), (OPEN[0], {}), [
        (rows(5), number(n)) for n in (2, 5, 9, 0, -1, -9)]),
    "number as a value": (lambda x, n: x * n.item() + torch.full((3, 1), n.item()),
                          (rows(3), number(2)), None, [(rows(3), number(n)) for n in (3, 0, -7)]),
    "truth as a number": (lambda x, t: x * torch.sym_float(t.item()) + t.item(),
                          (rows(3), number(True)), None,
                          [(rows(3), number(t)) for t in (True, False)]),
    "float as a value": (lambda x, a: x * a.item(), (rows(3), number(2.0)), None,
                         [(rows(3), number(a)) for a in (0.5, -3.0)]),
    "range to a number": (lambda n: torch.arange(n.item()) * 2, (number(4),), None,
                          [(number(n),) for n in (4, 7, 0)]),
    "places": (lambda x: ((x > 0).nonzero(), (x > 0.5).nonzero().sum()), (rows(3),), OPEN,
               [(rows(n),) for n in (2, 5)] + [(torch.zeros(3, 8),)]),
    "mask": (lambda x: (x[x > 0] * 2, torch.masked_select(x, x[:, :1] > 0).sum()), (rows(3),), OPEN,
             [(rows(n),) for n in (2, 5)] + [(torch.zeros(3, 8),)]),
    "kinds": (lambda i: torch.unique(i, return_inverse=True, return_counts=True),
              (number([1, 2, 2, 3]),), OPEN, [(number(v),) for v in ([3, 1, 3, 3, 0], [7, 7])]),
    "kinds with NaN": (lambda x: torch.unique(x, return_counts=True), (NANS,), None,
                       [(NANS,), (NANS.flip(0),), (NANS.nan_to_num(1.0),)]),
    "kinds of rows with NaN": (lambda x: torch.unique(x, dim=0, return_counts=True),
                               (NANS[[1, 0, 2, 4, 1, 5, 2, 4]].reshape(4, 2),), None,
                               [(NANS[[1, 0, 2, 4, 1, 5, 2, 4]].reshape(4, 2),)]),
    "runs": (lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
             (number([1, 2, 2, 3]),), None, [(number(v),) for v in ([3, 3, 1, 3], [7, 7, 7, 7])]),
    "runs of rows": (lambda x: torch.unique_consecutive(x, return_counts=True, dim=0),
                     (rows(4),), None, [(rows(4),), (rows(2).repeat_interleave(2, 0),)]),
    "repetitions": (lambda x, n: torch.repeat_interleave(x, n, dim=0), (rows(3), number([1, 0, 2])),
                    None, [(rows(3), number(n)) for n in ([1, 2, 3], [0, 0, 3], [0, 0, 0])]),
    "number given": (lambda x, n: x.view(n, -1) * n, (rows(12), 4), (OPEN[0], Dim.AUTO),
                     [(rows(12), 4), (rows(12), 3), (rows(20), 5)]),
    "branch of data": (chosen, (rows(3),), OPEN,
                       [(s * torch.ones(n, 8),) for n in (2, 5) for s in (1, -1, 3)]),
    "branch of extents": (lambda x: torch.cond(x.shape[0] > 4, torch.exp, torch.sin, (x,)),
                          (rows(3),), OPEN, [(rows(n),) for n in (2, 4, 5, 9)]),
    "loop of data": (doubled, (rows(3).abs(), number(4)), None,
                     [(rows(3).abs(), number(n)) for n in (3, 0, 50)]),
    "loop of extents": (counted, (rows(3),), OPEN, [(rows(n),) for n in (2, 5)]),
    "two loops": (steps, (rows(3), number(2)), None, COUNTS),
    "loop on one tensor": (swapped, (rows(3), number(2)), None, COUNTS),
    "branch in a loop": (balanced, (rows(3), number(2)), (OPEN[0], {}), [
        *COUNTS, (rows(5), number(4))]),
    "loop that reads extents": (widened, (rows(3),), OPEN, [(rows(n),) for n in (2, 5)]),
    "scan that reads extents": (scaled, (rows(3),), OPEN, [(rows(n),) for n in (2, 5)]),
    "loop of unknown size": (grown, (rows(3),), None, [(rows(3, seed),) for seed in (1, 2)]),
    "scan of many": (summed, (rows(3),), OPEN, [(rows(n),) for n in (2, 5, 40)]),
    "map of many": (lambda x, z: mapped(lambda row, z: row * 2 + z.sum(), x, z),
                    (rows(3), rows(2)), (OPEN[0], {}), [(rows(n), rows(2)) for n in (2, 6)]),
}  # fmt: skip


def exported(case: Case) -> torch.export.ExportedProgram:
    function, example, shapes, _ = case
    dynamic = None if shapes is None else (shapes,)
    return torch.export.export(Applied(function), tuple(example), dynamic_shapes=dynamic)


def assert_equal(exe: ag.Executable, function: Callable[..., Any], arguments: Any) -> None:
    """Assert that an executable makes what a function does."""
    expected = pytree.tree_leaves(function(*arguments))
    arrays = [x.numpy() if isinstance(x, torch.Tensor) else x for x in arguments]
    actual = pytree.tree_leaves(exe(*arrays))

    assert len(expected) == len(actual)
    for e, a in zip(expected, actual, strict=True):
        assert np.shape(e) == np.shape(a)
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_what_depends_on_data_equals_eager(name: str) -> None:
    function, _, _, calls = CASES[name]
    exe = ag.compile(exported(CASES[name]))

    for arguments in calls:
        assert_equal(exe, function, arguments)


@pytest.mark.parametrize("function", [summed, lambda x: mapped(lambda a, z: a + z[0], x, x.exp())])
def test_a_scan_over_few_slices_is_a_graph(function: Callable[..., Any]) -> None:
    program = torch.export.export(Applied(function), (rows(3),))
    graph = ag.load(program)

    assert isinstance(graph, ag.Graph)
    assert_equal(ag.compile(graph), function, (rows(3, seed=1),))


@pytest.mark.parametrize("shapes", [None, OPEN])
@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_loop_that_counts_is_a_graph(turns: int, shapes: Any) -> None:
    def repeated(x: torch.Tensor) -> Any:
        return while_loop(
            lambda i, y: i < turns, lambda i, y: (i + 1, torch.tanh(y) + i), (number(0), x)
        )

    graph = ag.load(exported((repeated, (rows(3),), shapes, ())))

    assert isinstance(graph, ag.Graph)
    assert_equal(ag.compile(graph), repeated, (rows(5 if shapes else 3, seed=1),))


def test_a_loop_that_counts_far_is_a_loop() -> None:
    def repeated(x: torch.Tensor) -> Any:
        return while_loop(lambda i, y: i < 65, lambda i, y: (i + 1, y + 1), (number(0), x))

    loaded = ag.load(exported((repeated, (rows(3),), None, ())))

    assert isinstance(loaded, ag.Graph)
    assert any(isinstance(n.op, Scan) for n in loaded.nodes)
    assert_equal(ag.compile(loaded), repeated, (rows(3, seed=1),))


def test_a_loop_that_is_refused_is_refused_when_it_is_loaded() -> None:
    def repeated(x: torch.Tensor) -> Any:
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, rare(y)), (number(0), x))

    with pytest.raises(UnsupportedError, match=r"control.rare\.default"):
        ag.load(exported((repeated, (rows(3),), None, ())))


@pytest.mark.parametrize("name", ["branch of data", "branch of extents"])
def test_short_branches_are_a_graph(name: str) -> None:
    assert isinstance(ag.load(exported(CASES[name])), ag.Graph)


class Rooted(nn.Module):
    """A branch by a square root, whose slope is infinite at 0 and NaN below, or a product."""

    def __init__(self) -> None:
        super().__init__()
        self.root = nn.Parameter(torch.zeros(8))
        self.factor = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        root, factor = self.root, self.factor
        return torch.cond(c, lambda x: (x * root).sqrt(), lambda x: x * factor, (x,))


@pytest.mark.parametrize("shapes", [None, ({0: Dim.AUTO}, {})])
def test_gradients_are_those_of_the_branch_that_is_taken(shapes: Any) -> None:
    module, x = Rooted(), rows(3)
    x[0] = 0
    program = torch.export.export(module, (x, number(True)), dynamic_shapes=shapes)
    graph = ag.trainable(ag.load(program))
    (y,) = graph.callers_outputs().values()
    ours = {"x": graph.inputs["x"], **{n: v.value for n, v in graph.variables.items()}}
    for name, slope in zip(ours, ag.gradients(graph, y, list(ours.values())), strict=True):
        graph.output(f"d{name}", slope)
    exe = ag.compile(graph)
    for c in (False, True):
        leaf = x.clone().requires_grad_()
        theirs = {"x": leaf, **dict(module.named_parameters())}
        y = (leaf * module.root).sqrt() if c else leaf * module.factor
        slopes = torch.autograd.grad(y.sum(), list(theirs.values()), allow_unused=True)
        outs = exe.run({"x": x.numpy(), "c": np.array(c)})

        assert ours.keys() == theirs.keys()
        for (name, v), slope in zip(theirs.items(), slopes, strict=True):
            want = torch.zeros_like(v) if slope is None else slope
            np.testing.assert_allclose(outs[f"d{name}"], want.numpy(), 1e-6)


def test_branches_make_several_results() -> None:
    def several(x: torch.Tensor, c: torch.Tensor) -> Any:
        return torch.cond(
            c, lambda x: (x + 1, x.sum(0), x.max()), lambda x: (x * 2, -x[0], x.min()), (x,)
        )

    graph = ag.load(exported((several, (rows(3), number(True)), (OPEN[0], {}), ())))

    assert isinstance(graph, ag.Graph)
    exe = ag.compile(graph)
    for n, c in ((3, True), (5, False), (2, True)):
        assert_equal(exe, several, (rows(n), number(c)))


def test_a_branch_that_is_not_taken_ends_no_call() -> None:
    def picked(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.cond(i.max() < 3, lambda x, i: x[i] * 2, lambda x, i: x * 3, (x, i))

    loaded = ag.load(exported((picked, (rows(3), number([0, 1, 2])), None, ())))
    exe = ag.compile(loaded)

    assert isinstance(loaded, ag.Graph)
    assert any(isinstance(n.op, If) for n in loaded.nodes)
    for i in ([2, 2, 0], [7, 8, 9]):
        assert_equal(exe, picked, (rows(3), number(i)))


def test_of_costly_branches_one_runs() -> None:
    def costly(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x.neg(), (x,))

    for n, is_cheap in ((64, True), (128, False)):
        x = torch.eye(n)
        loaded = ag.load(exported((costly, (x,), None, ())))

        assert isinstance(loaded, ag.Graph)
        assert any(isinstance(n.op, If) for n in loaded.nodes) != is_cheap
        for sign in (1, -1):
            assert_equal(ag.compile(loaded), costly, (sign * x,))


def test_a_branch_that_draws_random_numbers_is_not_computed_for_the_other() -> None:
    def drawn(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand(3, 8), lambda x: x.neg(), (x,))

    exe = ag.compile(exported((drawn, (rows(3),), None, ())))

    assert_equal(exe, drawn, (-torch.ones(3, 8),))
    with pytest.raises(UnsupportedError, match="random numbers are not supported"):
        exe(np.ones((3, 8), np.float32))


def test_a_branch_is_a_graph_behind_what_depends_on_data() -> None:
    def kept(x: torch.Tensor) -> torch.Tensor:
        y = x[x > 0]
        return torch.cond(y.sum() > 3, lambda y: y * 2, lambda y: y - 1, (y,))

    exe = ag.compile(exported((kept, (rows(3),), None, ())))
    for scale in (0.01, 10, 1):
        assert_equal(exe, kept, (rows(3) * scale,))


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_number_is_read_behind_a_long_chain(is_whole: bool) -> None:
    def chained(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        for _ in range(600):
            n, x = n + 1, torch.relu(x) if is_whole else x
        return x[: (x.sum(1).argmax() if is_whole else n - 599).item() + 1]

    exe = ag.compile(exported((chained, (rows(4), number(1)), None, ())), "interpreter")

    for n in (0, 2):
        assert_equal(exe, chained, (rows(4, seed=n), number(n)))


def test_a_number_out_of_its_range_ends_the_call() -> None:
    def checked(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        k = n.item()
        torch._check(k >= 2)
        torch._check(k <= x.shape[0])
        return x[:k]

    exe = ag.compile(exported((checked, (rows(4), number(2)), (OPEN[0], {}), ())))

    assert_equal(exe, checked, (rows(6), number(5)))
    for n, says in ((1, "at least 2"), (9, "u0 <= s")):
        with pytest.raises(FeedError, match=says):
            exe(rows(6).numpy(), np.array(n))


def test_an_archive_holds_what_was_met(tmp_path: Path) -> None:
    exe = ag.compile(exported(CASES["loop of data"]))
    arguments = (rows(3).abs(), number(3))
    assert_equal(exe, doubled, arguments)
    exe.save(tmp_path / "loop.ago")

    assert_equal(ag.open(tmp_path / "loop.ago"), doubled, arguments)


@torch.library.custom_op("alpenglow_control::rare", mutates_args=())
def rare(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("alpenglow_control::rarer", mutates_args=())
def rarer(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@rare.register_fake
@rarer.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_all_that_is_missing_is_listed_though_data_lead_there() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x[x > 0]
        return torch.cond(y.sum() > 0, rare, rarer, (y,))

    with pytest.raises(UnsupportedError, match=r"control.rare\.default.*control.rarer\.default"):
        ag.load(exported((f, (rows(3),), None, ())))


def test_a_buffer_in_a_program_that_depends_on_data_is_refused() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x[x > 0]

    program = torch.export.export(Counts(), (rows(3),))
    with pytest.raises(UnsupportedError, match=r"updates of count in a program"):
        ag.load(program)


def test_random_numbers_in_a_program_that_depends_on_data_are_refused() -> None:
    program = torch.export.export(Applied(lambda x: torch.rand(3) + x[x > 0].sum()), (rows(3),))
    with pytest.raises(UnsupportedError, match="random numbers are not supported"):
        ag.load(program)


def test_a_staged_program_is_a_model_of_its_own() -> None:
    assert isinstance(ag.load(exported(CASES["mask"])), TorchModel)


def test_a_mask_may_stretch_what_it_masks() -> None:
    x, mask = rows(1)[0], rows(3) > -9
    module = make_fx(torch.masked_select, tracing_mode="fake")(x, mask)
    exe = ag.compile(model_of(fx.traced(module)), "interpreter")
    (y,) = exe.run(dict(zip(exe.inputs, (x.numpy(), mask.numpy()), strict=True))).values()
    np.testing.assert_array_equal(y, torch.masked_select(x, mask).numpy())
