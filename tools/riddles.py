"""Count sentences whose subject is missing, by the patterns of our guide to writing.

    python tools/riddles.py [PATH ...]         list them
    python tools/riddles.py --record           write how many each file has

Docstrings and comments are read in Python, everything outside of code blocks in Markdown.
`tests/data/riddles.txt` holds a number a file; a test lets it only fall.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOTS = ("README.md", "CONTRIBUTING.md", "docs", "src", "tests", "tools", "bench", "examples")

RECORD = Path("tests/data/riddles.txt")

BUILT = ("docs/conformance", "docs/zoo.md", "docs/matrix.md", "docs/operators.md", "docs/cliffs.md")
"""Pages that tools write are judged in the sources they are written from."""

START = r"(?:^|[.:;] +|\n\n *)"
"""Where a sentence begins."""

PATTERNS = [
    re.compile(START + r"(?:What|Who|Whoever|Where|Of|Nobody) (?![^.\n]*\?)"),
    re.compile(r"\b[Rr]eturn (?:what|who|where|that of|those of)\b"),
    re.compile(r"\b(?:that|those) of\b(?! (?:a|the) [a-z]+ that)"),
    re.compile(r"(?<!here )\b(?:is|are) no (?!longer|more)[a-z]"),
    re.compile(r"\b(?:told|but for|[Ww]hoever|[Nn]obody|somebody|anybody|ours)\b"),
    re.compile(r"\b(?:stands?|stood) (?:in|at|for|beside|behind|before|above|below|there|here)\b"),
    re.compile(r"\bbeside\b"),
]

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_TARGET = re.compile(r"\]\([^)\n]*\)")


def prose_of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a page, with the line on which each begins, without code."""
    text = _FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", text):
        if paragraph.strip():
            yield line, _TARGET.sub("](x)", _CODE.sub("`x`", paragraph))
        line += paragraph.count("\n")


def prose_of_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and comments of a file, with the line on which each begins."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                yield node.lineno, _CODE.sub("`x`", docstring)
    before, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != before + 1 and lines:
                yield before - len(lines) + 1, " ".join(lines)
                lines = []
            lines.append(_CODE.sub("`x`", token.string.lstrip("# ")))
            before = token.start[0]
    if lines:
        yield before - len(lines) + 1, " ".join(lines)


def riddles(path: Path) -> list[tuple[int, str]]:
    """Return the line and sentence of each riddle in a file."""
    text = path.read_text()
    prose = prose_of_python(text) if path.suffix == ".py" else prose_of_markdown(text)
    found = []
    for line, paragraph in prose:
        for pattern in PATTERNS:
            for m in pattern.finditer(paragraph):
                at = line + paragraph.count("\n", 0, m.end())
                around = paragraph[max(0, m.start() - 30) : m.end() + 50]
                found.append((at, " ".join(around.split())))
    return sorted(found)


def files(roots: Sequence[str]) -> Iterator[Path]:
    """Yield the pages and files of Python at some places, in order, without built pages."""
    for root in map(Path, roots):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            is_built = path.as_posix().startswith(BUILT)
            if path.suffix in (".md", ".py") and path.is_file() and not is_built:
                yield path


def counts(roots: Sequence[str] = ROOTS) -> dict[str, int]:
    """Return how many riddles each file has, of those that have any."""
    found = {path.as_posix(): len(riddles(path)) for path in files(roots)}
    return {path: number for path, number in found.items() if number}


def main(arguments: Sequence[str]) -> int:
    """List riddles, or record their number a file."""
    if arguments == ["--record"]:
        RECORD.write_text("".join(f"{n} {path}\n" for path, n in counts().items()))
        return 0
    total = 0
    for path in files(arguments or ROOTS):
        for line, sentence in riddles(path):
            total += 1
            print(f"{path}:{line}: {sentence}")
    print(f"{total} sentences")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
