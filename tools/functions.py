"""Number the functions of the package, and mark them for a recorded run.

A *function* is a `def`, at any depth; a lambda or a comprehension belongs to the function around
it.  `marked` compiles a file so that each function first sets its byte of `__reached__`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "alpenglow"

Def = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a file: its name with the names around it, and its lines, ends included."""

    name: str
    first: int
    last: int
    node: Def


def functions(tree: ast.Module) -> list[Function]:
    """Return the functions of a file; equal names are numbered: `_`, `_#2`, `_#3`."""
    seen: Counter[str] = Counter()
    listed = []
    for name, node in _defs(tree, ""):
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        listed.append(Function(unique, first, node.end_lineno or node.lineno, node))
    return listed


def _defs(node: ast.AST, around: str) -> Iterator[tuple[str, Def]]:
    for child in ast.iter_child_nodes(node):
        inside = around
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = f"{around}{child.name}."
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{around}{child.name}", child
        yield from _defs(child, inside)


def sources() -> list[Path]:
    """Return the files of the package, in a fixed order."""
    return sorted(PACKAGE.rglob("*.py"))


def module(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def marked(path: Path, first: int) -> tuple[CodeType, list[str]]:
    """Return code that marks each function from number `first` on, and the names of these."""
    tree = ast.parse(path.read_bytes(), str(path))
    listed = functions(tree)
    for number, function in enumerate(listed, first):
        body = function.node.body
        documented = ast.get_docstring(function.node, clean=False) is not None
        mark = ast.parse(f"__reached__[{number}] = 1").body[0]
        for part in ast.walk(mark):
            ast.copy_location(part, body[0])
        body.insert(int(documented), mark)
    return compile(tree, str(path), "exec", dont_inherit=True), [f.name for f in listed]
