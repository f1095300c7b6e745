"""Targets: what a name means, and that names read back."""

from itertools import pairwise

import pytest

from alpenglow.base.errors import OptionError
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.targets import EXTRAS, LEVELS

NAMES = ["cpu", "interpreter", *LEVELS, "x86-64-v4+avx512vnni", "aarch64+dotprod+i8mm"]


@pytest.mark.parametrize("name", NAMES)
def test_a_target_prints_as_it_parses(name: str) -> None:
    target = Target.parse(name)

    assert str(target) == name
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    ("name", "architecture", "lanes", "registers"),
    [
        ("interpreter", "", 1, 16),
        ("x86-64", "x86-64", 4, 16),
        ("x86-64-v2", "x86-64", 4, 16),
        ("x86-64-v3", "x86-64", 8, 16),
        ("x86-64-v4", "x86-64", 16, 32),
        ("x86-64-v3+avx512vnni", "x86-64", 16, 32),
        ("x86-64+fma", "x86-64", 8, 16),
        ("aarch64", "aarch64", 4, 32),
        ("armv7-a", "arm", 4, 16),
        ("riscv64", "riscv64", 4, 32),
        ("wasm32", "wasm32", 4, 16),
    ],
)
def test_a_target_knows_its_vectors(
    name: str, architecture: str, lanes: int, registers: int
) -> None:
    target = Target.parse(name)

    assert (architecture, lanes, registers) == (
        target.architecture,
        target.facts.lanes,
        target.facts.registers,
    )


def test_avx512_code_uses_whole_vectors() -> None:
    names = ["x86-64-v4", "x86-64-v3+avx512f", "x86-64-v3"]
    whole = ["-prefer-256-bit" in Target.parse(name).features for name in names]

    assert whole == [True, True, False]


def test_each_level_holds_the_one_below() -> None:
    levels = [set(Target.parse(n).features) for n in LEVELS if n.startswith("x86-64")]

    assert all(lower < higher for lower, higher in pairwise(levels))


def test_features_in_any_order_are_the_same_target() -> None:
    assert Target.parse("x86-64-v4+avx512bf16+avx512vnni") == Target.parse(
        " X86-64-v4+avx512vnni+avx512bf16"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x86-64-v5", "'x86-64-v4'"),
        ("gpu", "'opencl:0'"),
        ("cqu", "'cpu'"),
        ("x86-64-v4+avx512vni", "'avx512vnni'"),
        ("aarch64+avx2", "dotprod"),
        ("cpu+avx2", "takes no features"),
        ("", "known are: cpu"),
    ],
)
def test_an_unknown_name_is_answered_with_what_is_known(name: str, said: str) -> None:
    with pytest.raises(OptionError) as raised:
        Target.parse(name)

    assert said in str(raised.value)


def test_code_for_this_host_and_its_base_level_can_run_here() -> None:
    host = Target.parse("cpu")
    base = next(n for n in LEVELS if Target.parse(n).architecture == host.architecture)
    foreign = [n for n in LEVELS if Target.parse(n).architecture != host.architecture]

    assert host.is_host_compatible()
    assert Target.parse("interpreter").is_host_compatible()
    assert Target.parse(base).is_host_compatible()
    assert not any(Target.parse(n).is_host_compatible() for n in foreign)


def test_code_that_needs_a_feature_not_here_cannot_run_here() -> None:
    host = Target.parse("cpu")
    base = next(n for n in LEVELS if Target.parse(n).architecture == host.architecture)
    absent = [f for f in EXTRAS[host.architecture] if not host.has(f)]

    assert not any(Target.parse(f"{base}+{f}").is_host_compatible() for f in absent)
