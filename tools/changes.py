"""Find the functions of the package that differ between a revision and the working tree.

Functions are compared as syntax trees, so a comment or a line break changes none.  A statement
outside functions that differs changes the functions that use a name that the statement binds: those
of its file and of the files that import it.
"""

from __future__ import annotations

import ast
import copy
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from functions import functions
from import_graph import Graph


@dataclass(frozen=True)
class Changes:
    """The files that differ, and the functions `FILE:NAME` that the differences change."""

    files: list[str]
    functions: set[str] = field(default_factory=set)


def changed_files(root: Path, base: str) -> list[str]:
    """Return the files that differ from `base`, and files that git does not know or ignore."""
    listed = _git(root, "diff", "--name-only", "--no-renames", base).splitlines()
    listed += _git(root, "ls-files", "--others", "--exclude-standard").splitlines()
    return sorted({n for n in listed if not (root / n).is_dir() and not (root / n).is_symlink()})


def default_base(root: Path) -> str:
    """Return HEAD if a file differs from it, else the merge base with `origin/main`, if there is
    one, else the parent of HEAD."""
    if changed_files(root, "HEAD"):
        return "HEAD"
    merge = _run(root, "merge-base", "HEAD", "origin/main")
    base = merge.stdout.strip()
    head = _git(root, "rev-parse", "HEAD").strip()
    return base if merge.returncode == 0 and base != head else "HEAD~1"


def changes(root: Path, base: str, graph: Graph) -> Changes:
    """Return the differences between a revision and the working tree."""
    found = Changes(changed_files(root, base))
    for name in found.files:
        if name.startswith("src/") and name.endswith(".py"):
            before = _run(root, "show", f"{base}:{name}").stdout
            path = root / name
            after = path.read_text(encoding="utf-8") if path.exists() else ""
            found.functions.update(changed_functions(root, graph, name, before, after))
    return found


def changed_functions(
    root: Path, graph: Graph, file: str, before: str, after: str
) -> Iterator[str]:
    """Yield the functions that a change of one file changes, as `FILE:NAME`."""
    old, new = ast.parse(before), ast.parse(after)
    olds, news = _dumps(old), _dumps(new)
    for name in sorted(olds.keys() | news.keys()):
        if olds.get(name) != news.get(name):
            yield f"{file}:{name}"
    names = _bound(_statements(old) ^ _statements(new), old, new)
    if names:
        yield from _users(new, file, names)
        for user in sorted(graph.users.get(file, ())):
            if user.startswith("src/"):
                text = (root / user).read_text(encoding="utf-8")
                if any(name in text for name in names):
                    yield from _users(ast.parse(text), user, names)


def _dumps(tree: ast.Module) -> dict[str, str]:
    """Return the text of each function's tree, without the functions inside it."""
    return {f.name: ast.dump(_hollow(f.node, keep=f.node)) for f in functions(tree)}


def _statements(tree: ast.Module) -> set[str]:
    """Return the statements outside functions, of each class without its methods."""
    return {ast.dump(_hollow(s)) for s in tree.body if not _is_import(s)}


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


class _Hollowing(ast.NodeTransformer):
    """Replace functions by their names."""

    def __init__(self, keep: ast.AST | None) -> None:
        self.keep = keep

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node is not self.keep:
            return ast.Pass()
        return super().generic_visit(node)


def _hollow(node: ast.AST, keep: ast.AST | None = None) -> ast.AST:
    """Return a copy of a tree in which other functions are `pass`."""
    node = copy.copy(node) if keep is None else node
    memo: dict[int, object] = {}
    copied: ast.AST = copy.deepcopy(node, memo)
    kept = memo.get(id(keep)) if keep is not None else None
    hollow: ast.AST = _Hollowing(kept if isinstance(kept, ast.AST) else None).visit(copied)
    return hollow


def _bound(dumps: set[str], *trees: ast.Module) -> set[str]:
    """Return the names that the statements with these texts bind."""
    names: set[str] = set()
    for tree in trees:
        for statement in tree.body:
            if not _is_import(statement) and ast.dump(_hollow(statement)) in dumps:
                names.update(_binds(statement))
    return names


def _binds(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _users(tree: ast.Module, file: str, names: set[str]) -> Iterator[str]:
    """Yield the functions of a file that use one of the names, those of a class that is named, and
    those that use what another statement of the file makes from them."""
    names = set(names)
    while more := {n for s in tree.body if _mentions(s, names) for n in _binds(s)} - names:
        names |= more
    for function in functions(tree):
        if names & set(function.name.split(".")) or _mentions(function.node, names):
            yield f"{file}:{function.name}"


def _mentions(node: ast.AST, names: Iterable[str]) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in names:
            return True
        if isinstance(part, ast.Attribute) and part.attr in names:
            return True
    return False


def _run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=root, text=True, capture_output=True, check=False)


def _git(root: Path, *words: str) -> str:
    done = _run(root, *words)
    if done.returncode:
        raise SystemExit(f"changed.py: git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
