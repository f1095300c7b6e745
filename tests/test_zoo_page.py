"""The page of the zoo: what it says of fixed extents and open ones, also of rows without them."""

from __future__ import annotations

import sys

import models

sys.path.insert(0, str(models.ROOT / "tools"))

import zoo_page
from zoo_large import LARGE
from zoo_models import Network, networks

AGREES = {"agrees": True, "relative": 1e-6, "cold_s": 1.0, "peak_mb": 150, "warned": []}
FILE = {"mb": 1, "nodes": 3, "exporter": "pytorch 2.8", "opset": {"": 17}}


def results(*rows: zoo_page.Row) -> list[tuple[Network, zoo_page.Row]]:
    """Return rows under the names of the first networks."""
    return [(n, FILE | row) for n, row in zip(networks().values(), rows, strict=False)]


def timed(ms: float, peer_ms: float) -> zoo_page.Row:
    return AGREES | {"ms": ms, "peer_ms": peer_ms}


def test_the_head_has_the_geometric_means_and_the_slowest() -> None:
    rows = results(
        {"fixed": timed(1, 4), "open": timed(1, 3)},
        {"fixed": timed(4, 4), "open": timed(4, 3)},
    )
    names = [network.name for network, _ in rows]

    page = zoo_page.page(rows)

    mean = "times as fast in the geometric mean of 2; the slowest is"
    assert f"Fixed: 2 agrees.  Beside ONNX Runtime: 2.00 {mean} {names[1]}, 1.00." in page
    assert f"Open: 2 agrees.  Beside ONNX Runtime: 1.50 {mean} {names[1]}, 0.75." in page


def test_a_row_has_times_and_ratios_of_both() -> None:
    opened = timed(4, 3) | {"compiled": [1, 0], "again": 2}
    [(network, row)] = results({"fixed": timed(2, 3) | {"again": 0}, "open": opened})

    line = zoo_page.printed(network, row)

    assert line.endswith("| 1 0 | 0 / 2 | 1e-06 | 1.0 / 1.0 | 150 | 2.000 / 4.000 | 1.50 / 0.75")


def test_a_row_from_before_open_extents_were_timed_is_printed() -> None:
    rows = results({"fixed": timed(2, 3), "open": AGREES | {"compiled": [1, 0]}})

    page = zoo_page.page(rows)

    assert "| 150 | 2.000 | 1.50 |" in page
    assert "\nOpen: 1 agrees.\n" in page


def test_a_time_of_open_extents_alone_does_not_pass_for_one_of_fixed() -> None:
    [(network, row)] = results({"fixed": {"refused": "no"}, "open": timed(4, 3)})

    line = zoo_page.printed(network, row)

    assert line.endswith("| – / 4.000 | – / 0.75")


def test_a_network_that_was_made_counts_as_none_of_the_trained_ones() -> None:
    rows = results({"fixed": timed(2, 3)})
    made = (LARGE, FILE | {"opset": {"": 21}, "exporter": "made", "fixed": timed(2, 3)})

    page = zoo_page.page([*rows, made])

    assert "1 networks of 1 packages, written by 1 exporters (pytorch), opsets 17 to 17." in page
    assert "`large` is made: weights are random, in an external file." in page
    assert "| large | tools/zoo_large.py seed 0 (made) |" in page
