"""Whole networks through OpenCL, on each runtime and in both ways: the numbers of other targets."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
import models

pytestmark = [pytest.mark.opencl, pytest.mark.models]

FEW = ("mnist8", "silero_vad_16k_op15")
"""A convolutional network and a recurrent one."""

MORE = ("squeezenet11", "squeezenet11_qdq", "minilm_l6_int8w", "style26", "seeded_resnet50")
"""Others, whose kernels take the runtimes' compilers a minute or two: with --sample 1."""

STRICT = ag.Options(numerics="strict")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        whole = metafunc.config.getoption("--sample") == 1
        metafunc.parametrize("name", [*FEW, *(MORE if whole else ())])


@pytest.mark.parametrize("runtime", ["intel", "pocl"])
def test_processors_give_the_bits_of_the_cpu_under_strict_numerics(name: str, runtime: str) -> None:
    feeds = models.inputs(name)
    shapes = {n: a.shape for n, a in feeds.items()}
    lanes = ag.Target.parse(f"opencl:{runtime}").facts.lanes
    levels = {16: "x86-64-v4", 8: "x86-64-v3", 4: "x86-64-v2"}
    expected = ag.compile(models.model_path(name), levels[lanes], shapes=shapes, options=STRICT)
    actual = ag.compile(
        models.model_path(name), f"opencl-cpu:{runtime}", shapes=shapes, options=STRICT
    )
    results = actual.run(feeds)

    assert all(entry.kernel for a in actual.artifacts for entry in a.table)
    for output, array in expected.run(feeds).items():
        np.testing.assert_array_equal(results[output], array)
