"""`alpenglow test-machine`: every operator and ONNX's node tests on a target, for makers of it."""

from __future__ import annotations

import re
from dataclasses import asdict

import click

from alpenglow.cli.help import Command
from alpenglow.cli.output import examples as shown_examples
from alpenglow.cli.output import show, table
from alpenglow.driver.progress import reporter
from alpenglow.frontends.onnx.node_tests import UNDECIDED, node_tests
from alpenglow.ir.target import Target
from alpenglow.report.conformance import (
    CaseOutcome,
    OperatorTally,
    examples,
    tables,
    try_example,
    try_node,
)

MOST_DETAILS = 40
"""How many cases that are wrong or refused are told one by one."""


@click.command(
    "test-machine",
    cls=Command,
    epilog=shown_examples("""
alpenglow test-machine cpu --every 20
alpenglow test-machine npu --only 'conv|mat_mul'
alpenglow test-machine npu --nodes --only Softmax
alpenglow test-machine npu --json > npu.json
"""),
)
@click.argument("target")
@click.option("--only", default="", metavar="REGEX", help="Run only operators whose names match.")
@click.option("--every", default=1, metavar="N", type=click.IntRange(1),
              help="Run only every N-th case.")  # fmt: skip
@click.option("--operators", "kinds", flag_value="operators",
              help="Run only the examples of operators.")
@click.option("--nodes", "kinds", flag_value="nodes", help="Run only ONNX's node tests.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context, target: str, only: str, every: int, kinds: str | None, as_json: bool
) -> None:
    """Run the examples of all operators and the ONNX node tests on TARGET.

    Examples are compared with the interpreter, node tests with the results that onnx expects.  An
    operator without a kernel on TARGET is interpreted; the table counts these.  The exit code is 1
    if a result is wrong.
    """
    machine = Target.parse(target)
    try:
        pattern = re.compile(only, re.IGNORECASE)
    except re.error as error:
        raise click.BadParameter(f"'{only}' is no regular expression: {error}") from None
    report = reporter(True)
    trials: list[CaseOutcome] = []
    undecided: list[str] = []
    if kinds != "nodes":
        cases = examples(lambda name: bool(pattern.search(name)))[::every]
        for done, (case, op, operands) in enumerate(cases):
            report("testing operators", done, len(cases))
            trials.append(try_example(case, op, operands, machine))
        report("testing operators", len(cases), len(cases))
    if kinds != "operators":
        asked = [t for t in node_tests() if pattern.search(t.operator)]
        undecided = sorted({t.name for t in asked if t.name in UNDECIDED})
        tests = [t for t in asked if t.name not in UNDECIDED][::every]
        for done, test in enumerate(tests):
            report("testing ONNX nodes", done, len(tests))
            trials.append(try_node(test, machine))
        report("testing ONNX nodes", len(tests), len(tests))
    rows = tables(trials)
    wrong = sum(r.wrong for r in rows)
    failures = [t for t in trials if t.verdict in ("wrong", "refused")]
    result = {
        "target": str(machine),
        "ok": not wrong,
        "operators": [asdict(r) for r in rows],
        "failures": [asdict(t) for t in failures],
        "undecided": {name: UNDECIDED[name] for name in undecided},
    }
    lines = _lines(rows, failures, machine)
    if undecided:
        lines.append(f"{len(undecided)} ONNX tests were left out, which decide nothing: random "
                     "numbers, or onnx's own mistakes; --json says which")  # fmt: skip
    show(result, lines, as_json)
    ctx.exit(1 if wrong else 0)


def _lines(rows: list[OperatorTally], failures: list[CaseOutcome], target: Target) -> list[str]:
    head = ("operator", "equal", "near", "refused", "wrong", "interpreted")
    counts = [(r.operator, r.equal, r.near, r.refused, r.wrong, r.interpreted) for r in rows]
    lines = table([head, *(tuple(map(str, c)) for c in counts)], frozenset(range(1, 6)))
    # What is wrong comes first.
    told = sorted(failures, key=lambda t: t.verdict, reverse=True)
    lines += ["", *(f"{t.verdict}: {t.case}: {t.detail}" for t in told[:MOST_DETAILS])]
    if len(told) > MOST_DETAILS:
        lines.append(f"… and {len(told) - MOST_DETAILS} more; --json has all")
    equal, near = sum(r.equal for r in rows), sum(r.near for r in rows)
    refused, wrong = sum(r.refused for r in rows), sum(r.wrong for r in rows)
    interpreted = sum(r.interpreted for r in rows)
    total = equal + near + refused + wrong
    lines.append(
        f"{target}: {total} cases: {equal} equal, {near} near, {refused} refused, {wrong} wrong; "
        f"{interpreted} interpreted in part"
    )
    return lines
