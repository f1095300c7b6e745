"""Draw small mistakes at random places of the package: mutations of its source.

A mutation changes one expression or statement inside a function: `+` is `-`, `<` is `<=`, a whole
number is one more, a condition is its opposite, or a statement that stores or calls is left out.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from functions import PACKAGE, ROOT, functions, sources

sys.path.insert(0, str(ROOT / "tests"))

OTHER: dict[type[ast.AST], ast.operator | ast.cmpop] = {
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Add(), ast.FloorDiv: ast.Mult(),
    ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE(), ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq(),
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """A file below the root, its text with the mistake, and what the mistake is."""

    file: str
    line: int
    kind: str
    what: str
    text: str


def planted() -> list[Mutation]:
    """Return the mistakes of tests/fuzz/mistakes.py."""
    listed = []
    for mistake in import_module("fuzz.mistakes").MISTAKES:
        path = PACKAGE / mistake.file
        text = path.read_text(encoding="utf-8")
        line = text[: text.index(mistake.old)].count("\n") + 1
        file = path.relative_to(ROOT).as_posix()
        mutated = text.replace(mistake.old, mistake.new)
        listed.append(Mutation(file, line, "by hand", mistake.name, mutated))
    return listed


def drawn(count: int, seed: int) -> list[Mutation]:
    """Draw mutations, of a file the more often the longer it is."""
    dice = random.Random(seed)
    paths = sources()
    sizes = [path.stat().st_size for path in paths]
    listed: list[Mutation] = []
    while len(listed) < count:
        (path,) = dice.choices(paths, sizes)
        places = list(mutations(path.read_text(encoding="utf-8"), path))
        if places:
            kinds = sorted({m.kind for m in places})
            kind = dice.choice(kinds)
            listed.append(dice.choice([m for m in places if m.kind == kind]))
    return listed


def mutations(text: str, path: Path) -> Iterator[Mutation]:
    """Yield the mutations of the functions of a file."""
    file = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    lines = text.splitlines(keepends=True)
    seen: set[int] = set()
    for function in functions(ast.parse(text)):
        for statement in function.node.body:
            for node in ast.walk(statement):
                other = None if id(node) in seen else _mutated(node)
                seen.add(id(node))
                if other is not None and isinstance(node, (ast.expr, ast.stmt)):
                    kind, new = other
                    old = ast.get_source_segment(text, node) or ""
                    what = f"`{_short(old)}` is `{_short(new)}`"
                    yield Mutation(file, node.lineno, kind, what, _spliced(lines, node, new))


def _mutated(node: ast.AST) -> tuple[str, str] | None:
    """Return the kind of a mutation, and the text that stands in place of a node."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in OTHER and not _text(left, right):
            return "arithmetic", f"({ast.unparse(ast.BinOp(left, _operator(op), right))})"
        case ast.Compare(left, [op], [right]) if type(op) in OTHER:
            return "comparison", f"({ast.unparse(ast.Compare(left, [_comparison(op)], [right]))})"
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return "constant", str(value + 1)
        case ast.IfExp(test, body, orelse):
            return "condition", f"({ast.unparse(ast.IfExp(test, orelse, body))})"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            return "statement", "pass"
    return None


def _text(*nodes: ast.expr) -> bool:
    """Return True if one of the nodes is a text or a list, which has no `-`."""
    lists = ast.JoinedStr | ast.List | ast.Tuple
    return any(isinstance(n, lists) or isinstance(getattr(n, "value", None), str) for n in nodes)


def _operator(op: ast.operator) -> ast.operator:
    other = OTHER[type(op)]
    assert isinstance(other, ast.operator)
    return other


def _comparison(op: ast.cmpop) -> ast.cmpop:
    other = OTHER[type(op)]
    assert isinstance(other, ast.cmpop)
    return other


def _spliced(lines: list[str], node: ast.expr | ast.stmt, new: str) -> str:
    """Return the text of a file with another text in place of a node."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
    middle = first[: node.col_offset] + new.encode() + last[node.end_col_offset :]
    return "".join([*lines[: node.lineno - 1], middle.decode(), *lines[node.end_lineno :]])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:37]}…"
