"""The passes of the table, those of machines too, and their rules: each has a case in
tests/golden/passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import walk_packages

import pytest

import conftest
from alpenglow.base import knobs
from alpenglow.compiler import Options
from alpenglow.compiler.pipeline import properties_after, table
from alpenglow.ir.graph import Graph, Node
from alpenglow.ir.rewrite import Rewritten, Rule, Rules
from alpenglow.machines.registry import machines
from alpenglow.machines.vector.passes import (
    expand_padding,
    f16_to_f32,
    propagate_layout,
    separate,
    to_u8_i8,
)
from alpenglow.ops.tensor.movement import Pad
from alpenglow.passes import (
    absorb,
    pointwise,
    quantized,
    recover,
    simplify,
    sink,
    stored,
    tables,
    unsigned,
)
from alpenglow.passes.table import Pass, ignoring_target
from alpenglow.program.text import print_ir
from pass_cases import FOLDER, Case, cases, check_meaning, check_text, fired

RULES: dict[str, tuple[Rules, ...]] = {
    "absorb": (absorb.rules,),
    "expand_padding": (expand_padding.rules,),
    "recover_f16": (recover.rules, recover.fast_rules),
    "f16_to_f32": (f16_to_f32.rules,),
    "quantized": (quantized.rules, unsigned.rules, pointwise.rules, tables.rules),
    "recover": (recover.rules,),
    "separate": (separate.largest, separate.means),
    "to_u8_i8": (to_u8_i8.rules,),
    "simplify": (simplify.rules,),
    "sink": (sink.rules,),
    "stored": (stored.rules,),
    "propagate_layout": (propagate_layout.rules,),
}
"""The rules of which a file has cases."""

PASSES = {p.name: p for p in table(Options(precision="bf16", keep=("kept",), memory=300))[0]}
"""All passes, as they are where halves are asked for, one result is to be kept, and memory is
short."""

ALIKE = {
    "captures": "control",
    "tidy": "simplify",
    "fold_again": "dequantize_rest",
    "prepare": "dequantize_rest",
}
"""Passes that run what another runs, and so make the same of its cases."""

TOLERANCE = {
    "absorb": 1e-4,
    "tile_batch": 1e-3,
    "exact": 0.02,
    "low_bit_matmul": 1e-5,
    "groups": 1e-5,
    "recover_f16": 1e-2,
    "slice_to_used": 1e-5,
    "fold_upsample": 1e-5,
    "layout": 1e-5,
    "phases": 1e-5,
    "precision": 0.1,
    "quantized": 1e-6,
    "stream_rows": 1e-5,
    "recover": 1e-4,
    "round": 0.02,
    "round_blocks": 0.02,
    "separate": 1e-6,
    "ungroup": 1e-5,
    "dequantize_low_bit": 1e-5,
    "winograd": 1e-3,
}
"""What rounds differently afterwards; all others compute the same bits."""

ONCE = {
    "precision": "contractions of halves have results of f32 too",
    "stream_rows": "what is computed by rows stands in buffers that hold several values in turn",
    "schedule": "it makes a program of a graph",
    "views": "it moves what stands in buffers of its own",
}
"""Passes that do not run on what they made, and why."""


def file_of(name: str) -> str:
    """Return the name of the file that holds the cases of a pass."""
    return ALIKE.get(name, name)


CASES = [pytest.param(p, c, id=f"{p}-{c.name}") for p in PASSES for c in cases(file_of(p))]


def every_rule() -> set[Rule]:
    """Return the rules that modules of the compiler and of every machine define."""
    folders = {type(m).__module__.rpartition(".")[0] for m in machines().values()}
    return {
        rule
        for folder in ("alpenglow.passes", *folders)
        for name in modules(folder)
        for rules in vars(import_module(name)).values()
        if isinstance(rules, Rules)
        for rule in rules.rules()
    }


def modules(folder: str) -> Iterator[str]:
    """Yield the names of a package's modules, those of packages in it too."""
    package = import_module(folder)
    yield from (m.name for m in walk_packages(package.__path__, f"{folder}."))


def without_case(rules: Iterable[Rule]) -> list[str]:
    """Return the rules that no case makes fire, by module and name."""
    shown = {rule for name, sets in RULES.items() for rule in fired(sets, name)}
    return sorted(f"{r.__module__}.{r.__name__}" for r in set(rules) - shown)


def test_every_rule_is_exercised_by_a_case() -> None:
    assert without_case(every_rule()) == []


def test_a_rule_without_a_case_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Rules()

    @planted.on(Pad)
    def pad_nothing(g: Graph, node: Node) -> Rewritten:
        """pad(x, 0) => x"""
        return None

    monkeypatch.setattr(expand_padding, "planted", planted, raising=False)

    assert without_case(every_rule()) == [f"{__name__}.pad_nothing"]


def test_every_rule_states_its_law() -> None:
    assert [r.__name__ for r in every_rule() if "=>" not in (r.__doc__ or "")] == []


def without_cases(passes: Iterable[Pass]) -> list[str]:
    """Return the names of the passes that have no case."""
    return [p.name for p in passes if not cases(file_of(p.name))]


def test_every_pass_has_a_case() -> None:
    assert without_cases(PASSES.values()) == []


def test_a_pass_without_a_case_is_named() -> None:
    planted = Pass("planted", ignoring_target(simplify.simplify))

    assert without_cases([planted, *PASSES.values()]) == ["planted"]


def test_every_file_of_cases_belongs_to_a_pass() -> None:
    expected = PASSES.keys() - ALIKE.keys()
    actual = {path.stem for path in FOLDER.glob("*.txt")}

    assert expected == actual


@pytest.mark.parametrize("name", PASSES)
def test_the_cases_become_what_their_file_says(name: str, bless: bool) -> None:
    check_text(file_of(name), PASSES[name], bless and name not in ALIKE)


@pytest.mark.parametrize(("name", "case"), CASES)
@pytest.mark.sampled(140)
def test_a_case_means_the_same_afterwards(name: str, case: Case) -> None:
    check_meaning(case, PASSES[name], properties_after(name), TOLERANCE.get(file_of(name), 0))


@pytest.mark.parametrize(("name", "case"), [c for c in CASES if c.values[0] not in ONCE])
def test_a_second_pass_changes_nothing(name: str, case: Case) -> None:
    once = case.rewritten(PASSES[name])
    expected = print_ir(once)

    assert expected == print_ir(case.rewritten(PASSES[name], once))


def test_a_network_of_bytes_has_no_floats_but_multipliers() -> None:
    (case,) = [c for c in cases("quantized") if c.name == "conv_of_integers"]
    g = case.rewritten(PASSES["quantized"])
    floats = [n for n in g.nodes if n.output.type.dtype == "f32" and n.op.name != "broadcast"]

    assert floats == []


@pytest.mark.skipif(conftest.CHECK_IS_SAID, reason="ALPENGLOW_CHECK is set from outside")
def test_passes_are_validated_here() -> None:
    assert knobs.check()
