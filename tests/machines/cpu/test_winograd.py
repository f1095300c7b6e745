"""Winograd's way: its matrices, how far it rounds, when it is taken, and bands of rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.dims import Assumption, assuming, symbol
from alpenglow.ir.types import Array
from alpenglow.machines.choice import ChosenKernel
from alpenglow.machines.cpu import emit
from alpenglow.machines.vector.operators.winograd import (
    POINTS,
    WinogradFilter,
    WinogradInput,
    WinogradOutput,
    transforms,
)
from alpenglow.machines.vector.passes import tile_rows, winograd
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.packing import PackConv
from alpenglow.ops.window.conv_filter import ConvFilter
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.program.instr import Instr


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def convolved(x: Array, w: Array) -> Array:
    """Return the convolution of one image in f64, padded by 1."""
    wide = np.pad(x[0], ((0, 0), (1, 1), (1, 1))).astype(np.float64)
    patches = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))
    made: Array = np.einsum("chwij,ocij->ohw", patches, w.astype(np.float64), optimize=True)
    return made


def compiled(x: Array, w: Array) -> tuple[ag.Executable, Array]:
    g = ag.Graph("f")
    g.output("y", g(Conv((1, 1), (1,) * 4), g.input("x", f"f32[{_text(x)}]"), g.constant(w)))
    exe = ag.compile(g, threads=1)
    return exe, exe(x)


def _text(x: Array) -> str:
    return ",".join(map(str, x.shape))


def operators(exe: ag.Executable) -> list[str]:
    instrs = exe.artifact.program.instrs()
    return [n.op.name for i in instrs for n in (i.body.nodes if i.body is not None else [i])]


@pytest.mark.parametrize("block", POINTS)
def test_the_matrices_make_a_convolution(block: int) -> None:
    t = transforms(block)
    patch, taps = normal(block + 2, block + 2).astype(np.float64), normal(3, 3).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(patch, (3, 3))
    wanted = np.einsum("yxij,ij->yx", windows, taps)

    points = (t.input @ patch @ t.input.T) * (t.filter @ taps @ t.filter.T)

    np.testing.assert_allclose(t.output @ points @ t.output.T, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("channels", [16, 128, 512])
@pytest.mark.parametrize("block", POINTS)
@pytest.mark.sampled(3)
def test_the_error_is_what_the_table_says(
    block: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "best_block", lambda *_: block)
    x, w = normal(1, channels, 24, 24), normal(32, channels, 3, 3)
    exe, y = compiled(x, w)
    wanted = convolved(x, w)

    far = np.abs(y[0] - wanted).max() / np.abs(wanted).max()

    assert "winograd_product" in operators(exe)
    assert winograd.error(block, channels) / 5 < far < winograd.error(block, channels)


def test_larger_images_take_larger_blocks_and_small_ones_none() -> None:
    def best(channels: int, extent: int) -> int:
        shape = (1, channels, extent, extent)
        return winograd.best_block((channels, channels, 3, 3), shape)

    assert [best(64, 224), best(128, 28), best(512, 7), best(64, 3)] == [6, 4, 2, 0]


def test_so_many_channels_that_errors_add_up_take_smaller_blocks() -> None:
    assert winograd.best_block((512, 512, 3, 3), (1, 512, 224, 224)) == 6
    assert winograd.best_block((1024, 1024, 3, 3), (1, 1024, 224, 224)) == 4


def test_filters_with_open_extents_are_weighed_by_an_estimate() -> None:
    with assuming(Assumption({"C": 64})):
        assert winograd.best_block((64, symbol("C"), 3, 3), (1, 64, 224, 224)) == 6
        assert winograd.best_block((64, symbol("C"), 3, 3), (1, 64, 3, 3)) == winograd.DIRECT


@pytest.mark.parametrize("extents", [(13, 12), (12, 17), (25, 6), (6, 1)])
@pytest.mark.parametrize("block", POINTS)
@pytest.mark.sampled(4)
def test_images_that_are_not_whole_blocks(
    block: int, extents: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "best_block", lambda *_: block)
    x, w = normal(1, 20, *extents), normal(40, 20, 3, 3)

    _, y = compiled(x, w)

    wanted = convolved(x, w)
    np.testing.assert_allclose(y[0], wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


# ── bands ──


def network(samples: int = 1, extent: int = 40) -> ag.Graph:
    """A residual block, so that bands meet sums, biases and the next convolution's border."""
    g = ag.Graph("f")
    x = g.input("x", f"f32[{samples},24,{extent},{extent}]")
    y = x
    for i in range(2):
        w, b = g.constant(normal(24, 24, 3, 3, seed=i)), g.constant(normal(24, seed=i))
        y = g(Conv((1, 1), (1,) * 4), y, w, b)
        y = g(Relu(), g(Add(), y, x) if i else y)
    g.output("y", y)
    return g


def small_cache(nbytes: int = 300_000) -> ag.Target:
    """Return this machine with a cache for which graphs that are quick to run are too large."""
    host = ag.Target.parse("cpu")
    return replace(host, facts=replace(host.facts, cache=nbytes))


def banded(g: ag.Graph) -> tuple[ag.Executable, ag.Executable]:
    """Compile with bands, of few rows, and without."""
    split = ag.compile(g, small_cache(), threads=1)
    return split, ag.compile(g, threads=1)


@pytest.mark.parametrize(("samples", "extent"), [(1, 40), (1, 45), (2, 40)])
@pytest.mark.sampled(1)
def test_bands_give_the_same_bits(samples: int, extent: int) -> None:
    split, whole = banded(network(samples, extent))
    x = normal(samples, 24, extent, extent)

    assert operators(split).count("winograd_output") > operators(whole).count("winograd_output")
    np.testing.assert_array_equal(split(x), whole(x))


@pytest.mark.rest
def test_bands_need_less_memory_and_copy_nothing() -> None:
    split, whole = banded(network())

    assert split.artifact.program.arena < whole.artifact.program.arena
    assert {"copy", "concat", "slice"}.isdisjoint(set(operators(split)) - set(operators(whole)))


def test_bands_share_a_kernel_that_is_built_and_proved_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[str] = []

    def counted(instr: Instr, target: ag.Target, strict: bool) -> ChosenKernel | None:
        chosen.append(instr.op.name)
        return choose(instr, target, strict)

    choose = emit.choose
    monkeypatch.setattr(emit, "choose", counted)
    split = ag.compile(network(extent=48), small_cache(), threads=1)

    assert operators(split).count("winograd_input") == 16
    assert chosen.count("winograd_input") == 1


def pooled(kernel: int) -> ag.Graph:
    """A convolution, a bias, an activation and a pool of every other place."""
    g = ag.Graph("f")
    w, b = g.constant(normal(24, 24, 3, 3)), g.constant(normal(24))
    y = g(Relu(), g(Conv((1, 1), (1,) * 4), g.input("x", "f32[1,24,40,40]"), w, b))
    g.output("y", g(MaxPool((kernel, kernel), (2, 2), (0,) * 4, (1, 1)), y))
    return g


def test_a_pool_goes_with_the_bands() -> None:
    split, whole = banded(pooled(2))
    x = normal(1, 24, 40, 40)

    pools = operators(split).count("max_pool")
    assert pools == operators(split).count("winograd_output") > 1
    np.testing.assert_array_equal(split(x), whole(x))


@pytest.mark.rest
def test_a_pool_whose_windows_lie_across_bands_stays_whole() -> None:
    split, whole = banded(pooled(3))
    x = normal(1, 24, 40, 40)

    assert operators(split).count("max_pool") == 1 < operators(split).count("winograd_output")
    np.testing.assert_array_equal(split(x), whole(x))


@pytest.mark.rest
def test_bands_do_not_read_filters_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_rows, "READS", 0)
    split, _ = banded(network())

    assert operators(split).count("winograd_output") == 2


def test_what_fits_into_the_cache_has_no_bands() -> None:
    exe = ag.compile(network(), threads=1)

    assert operators(exe).count("winograd_output") == 2


def test_products_that_somebody_else_reads_stay_whole() -> None:
    g = ag.Graph("f")
    v = g(WinogradInput(4), g.input("x", "f32[1,16/16,42,42,16]"))
    g.output("patches", v)
    before = len(g.nodes)

    assert len(tile_rows.split_bands(g, small_cache(1)).nodes) == before


@pytest.mark.rest
def test_a_result_that_is_read_twice_ends_the_band(monkeypatch: pytest.MonkeyPatch) -> None:
    g = network()
    relu = [n for n in g.nodes if n.op == Relu()]
    g.output("first", relu[0].output)
    split, whole = banded(g)
    x = normal(1, 24, 40, 40)

    made, wanted = split.run({"x": x}), whole.run({"x": x})
    for name in ("y", "first"):
        np.testing.assert_array_equal(made[name], wanted[name])
    assert WinogradOutput.name in operators(split)


def test_filters_are_transformed_as_they_are_packed() -> None:
    w, one = normal(20, 19, 3, 3), transforms(4).filter
    each = np.einsum("ai,ocij,bj->abco", one, w, one).reshape(36, 19, 20)

    packed = WinogradFilter().reference(PackConv(16, 16).reference(w)).reshape(36, 2, 32, 16)

    np.testing.assert_allclose(packed[:, 0, :19], each[:, :, :16], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(packed[:, 1, :19, :4], each[:, :, 16:], rtol=1e-5, atol=1e-6)
    assert not packed[:, :, 19:].any() and not packed[:, 1, :, 4:].any()


@pytest.mark.parametrize("back", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("target", ["cpu", "x86-64", "x86-64-v3"])
@pytest.mark.parametrize("block", POINTS)
@pytest.mark.sampled(4)
def test_filters_that_are_computed_are_transformed_in_each_run(
    block: int, target: str, back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "best_block", lambda *_: block)
    one, filters = normal(1, 20, 13, 9), normal(40, 20, 3, 3)
    # The gradient of an image is a convolution by filters that are turned round.
    given = filters.swapaxes(0, 1)[:, :, ::-1, ::-1] if back else filters
    op = ConvTranspose((1, 1), (1,) * 4, (1, 1), (0, 0)) if back else Conv((1, 1), (1,) * 4)
    g = ag.Graph("computed")
    x, w = g.input("x", f"f32[{_text(one)}]"), g.input("w", f"f32[{_text(given)}]")
    g.output("y", g(op, x, w))
    exe = ag.compile(g, target, threads=1)

    for sign in (1, -1):
        y = exe(one, np.ascontiguousarray(sign * given))
        wanted = convolved(one, sign * filters)
        far = np.abs(y[0] - wanted).max() / np.abs(wanted).max()
        assert far < winograd.error(block, 20)
    assert {"winograd_filter", "winograd_product"} <= set(operators(exe))


@pytest.mark.parametrize("image", [(2, 13, 9), (1, 6, 30), (3, 24, 2), (1, 60, 61)], ids=str)
@pytest.mark.parametrize("channels", [(20, 40), (16, 17), (33, 16)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "x86-64", "x86-64-v3"])
@pytest.mark.parametrize("block", POINTS)
@pytest.mark.sampled(3)
def test_gradients_of_filters_are_sums_of_products(
    block: int, target: str, channels: tuple[int, int], image: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(winograd, "best_block", lambda *_, **__: block)
    (inputs, outputs), (n, height, width) = channels, image
    x, dy = normal(n, inputs, height, width), normal(n, outputs, height, width, seed=1)
    op = ConvFilter((3, 3), (1, 1), (1,) * 4, (1, 1))
    g = ag.Graph("filters")
    given = g.input("x", f"f32[{_text(x)}]"), g.input("dy", f"f32[{_text(dy)}]")
    g.output("dw", g(op, *given))
    exe = ag.compile(g, target, threads=2)

    wanted = op.reference(x.astype(np.float64), dy.astype(np.float64))
    far = np.abs(exe(x, dy) - wanted).max() / np.abs(wanted).max()
    assert far < winograd.error(block, n * height * width)
    assert {"winograd_sums", "winograd_filter_back"} <= set(operators(exe))
