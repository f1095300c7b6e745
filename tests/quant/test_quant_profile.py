"""Observers, calibrations, and the file of a profile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from alpenglow.base.errors import ModelError, OptionError, ParseError
from alpenglow.ir.graph import Graph
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.quant.calibrate import CALIBRATIONS, Calibration, Storage, calibrate
from alpenglow.quant.document import parsed, written
from alpenglow.quant.naming import fingerprint, names
from alpenglow.quant.observe import ObservedRange, Observer
from alpenglow.quant.profile import Profile
from alpenglow.quant.schema import parameters

RNG = np.random.default_rng(0)


def seen(*arrays: object, bins: int = 64) -> ObservedRange:
    observer = Observer(bins)
    for array in arrays:
        observer.see(np.asarray(array, np.float32))
    return observer.range


# ── observers ──


def test_a_histogram_counts_every_element_whatever_the_order() -> None:
    x = RNG.standard_normal(1000) * 10.0 ** RNG.integers(-3, 3, 1000)
    parts = np.split(x, [1, 3, 10, 500])
    forward, backward = seen(*parts), seen(*reversed(parts))

    for r in (forward, backward):
        assert r.total == 1000
        assert (r.low, r.high) == (np.float32(x.min()), np.float32(x.max()))
        assert r.begin <= r.low <= r.high <= r.end


def test_a_grown_histogram_is_as_right_as_its_bins_are_wide() -> None:
    x = RNG.standard_normal(4000)
    r = seen(x[:7], x[7:300], x[300:], bins=256)
    width = (r.end - r.begin) / 256
    below = np.cumsum(r.counts)
    edges = np.linspace(r.begin, r.end, 257)[1:]

    for count, edge in zip(below, edges, strict=True):
        assert (x < edge - width).sum() <= count <= (x <= edge + width).sum()


def test_the_same_number_again_and_again_is_a_range_without_width() -> None:
    r = seen([3.0, 3.0], [3.0])

    assert (r.low, r.high, r.total, r.mean) == (3.0, 3.0, 3, 3.0)
    assert seen([3.0, 3.0], [1.0, 5.0]).counts.sum() == 4


def test_from_the_smallest_number_to_the_largest_nothing_is_lost() -> None:
    r = seen([0.0], [1e-45], [3e38], [-3e38])

    assert r.total == 4 and (r.low, r.high) == (np.float32(-3e38), np.float32(3e38))


def test_numbers_that_are_not_finite_are_counted_apart() -> None:
    r = seen([1.0, np.nan, np.inf], [-np.inf], [2.0])

    assert (r.low, r.high, r.total, r.infinite) == (1.0, 2.0, 2, 3)


def test_nothing_seen_is_the_range_of_zero() -> None:
    r = seen([], [np.nan])

    assert (r.low, r.high, r.total, r.sparkline()) == (0.0, 0.0, 0, "")


@pytest.mark.parametrize("bins", [0, 15, 17])
def test_a_wrong_number_of_bins_is_refused(bins: int) -> None:
    with pytest.raises(OptionError, match=f"{bins} bins"):
        Observer(bins)


# ── calibrations ──

INT8 = Storage("u8", "asymmetric")


def outliers() -> ObservedRange:
    """Ten thousand numbers about 1 and a single 1000."""
    return seen(RNG.standard_normal(10_000), [1000.0], bins=2048)


def test_minmax_keeps_everything() -> None:
    r = outliers()

    assert calibrate(r, "minmax", INT8) == (r.low, r.high)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_a_lone_outlier_is_cut_off(method: Calibration) -> None:
    r = outliers()
    low, high = calibrate(r, method, INT8, 99.9)

    assert r.low <= low < 0 < high < 500


def test_mse_has_the_least_error_of_all() -> None:
    x = RNG.standard_t(3, 20_000)
    r = seen(x, bins=2048)
    errors = {}
    for method in CALIBRATIONS:
        p = parameters(*calibrate(r, method, INT8), "u8", "asymmetric")
        errors[method] = float(((p.restored(x) - x) ** 2).mean())

    assert min(errors, key=lambda m: errors[m]) == "mse"


@pytest.mark.parametrize("method", CALIBRATIONS)
@pytest.mark.parametrize("x", [[0.0, 0.0], [5.0], [-2.0, -1.0], [0.0, 1e-44]], ids=str)
def test_small_and_narrow_ranges_are_calibrated_to_something_usable(
    method: Calibration, x: list[float]
) -> None:
    low, high = calibrate(seen(x), method, INT8)

    assert parameters(low, high, "u8", "asymmetric").scale > 0


def test_zeros_do_not_outvote_the_rest() -> None:
    x = np.maximum(RNG.standard_normal(10_000), 0) * 10
    r = seen(np.concatenate([x, np.zeros(100_000)]), bins=2048)

    assert calibrate(r, "entropy", INT8)[1] > 0.5 * r.high


def test_an_unknown_method_or_percentile_is_refused() -> None:
    with pytest.raises(OptionError, match="calibration is 'best', expected one of minmax"):
        calibrate(outliers(), "best", INT8)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="percentile 50"):
        calibrate(outliers(), "percentile", INT8, 50)


# ── files ──


def graph(extent: str = "4") -> Graph:
    g = Graph("g")
    x = g.input("x", f"f32[{extent}]")
    g.output("y", g(Neg(), g(Relu(), x), name="y"))
    return g


def test_a_profile_is_read_back_from_its_file(tmp_path: Path) -> None:
    ranges = {"x": seen([-1, 2.5]), 'a "b": #c': seen([np.nan, 1e-30]), "no": seen([])}
    profile = Profile(fingerprint(graph()), 3, ranges)
    profile.save(tmp_path / "p.yaml")
    found = Profile.load(tmp_path / "p.yaml")

    assert (found.graph, found.samples, list(found.ranges)) == (profile.graph, 3, list(ranges))
    for name, r in ranges.items():
        assert found.ranges[name].counts.tolist() == r.counts.tolist()
        assert (found.ranges[name].low, found.ranges[name].infinite) == (r.low, r.infinite)


def test_a_profile_of_another_graph_is_refused() -> None:
    other = Graph("g")
    other.output("y", other(Relu(), other.input("x", "f32[4]")))
    profile = Profile(fingerprint(other), 1, {})

    with pytest.raises(ModelError, match="the profile is of another graph"):
        profile.check(graph())


def test_extents_make_no_other_graph() -> None:
    assert fingerprint(graph("N")) == fingerprint(graph("7"))


def test_values_without_a_name_are_called_by_their_operator() -> None:
    assert list(names(graph()).values()) == ["x", "y", "relu:0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "format is None, expected 1"),
        ("format: 1\n", "expected the keys graph"),
        ("format: 1\n  x: 2\n", "line 2: expected 2 spaces per level"),
        ("format: 1\nformat: 1\n", "line 2: the key 'format' is already there"),
        ("format: 1 2\n", "line 1: expected a number, found '1 2'"),
        ("what is this", "line 1: expected KEY: VALUE"),
        (
            "format: 1\ngraph: a\nsamples: 1\nvalues:\n  x:\n    low: .nan\n",
            "line 6: expected a number, found '.nan'",
        ),
        ("format: 1\ngraph: a\nsamples: 1\nvalues:\n  x:\n    low: inf\n", "low is "),
        ("format: 1\ngraph: a\nsamples: 1\nvalues:\n  x: 3\n", "value 'x': expected a mapping"),
    ],
    ids=str,
)
def test_what_is_no_profile_is_refused_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "p.yaml").write_text(text)

    with pytest.raises(ParseError, match=message):
        Profile.load(tmp_path / "p.yaml")


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    text = Profile("a", 1, {"x": seen([1, 2])}).text().replace("high: 2.0", "high: 0.5")

    with pytest.raises(ParseError, match="value 'x': expected low <= high"):
        Profile.parse(text)


def test_documents_are_plain_yaml() -> None:
    document = {"a": 1, "b c": "yes", "list": [1, 2e-30], "inner": {"x": {"z": -1}}, "s": "t"}
    text = written(document, {"inner": "a note"})  # type: ignore[arg-type]

    assert parsed(text) == document
    assert text == (
        'a: 1\n"b c": "yes"\nlist: [1, 2.0e-30]\n# a note\ninner:\n  x:\n    z: -1\ns: t\n'
    )
