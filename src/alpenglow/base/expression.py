"""Python's parser, for text that nobody vouches for.

Releases of Python differ in what they raise for text that is no expression: a null byte is a
`ValueError` before 3.11.4 and a `SyntaxError` from then on, deep nesting ends in one of three
errors at depths that differ.  Here all of it is a `ParseError`, and what is returned can be
walked by recursion and printed.
"""

from __future__ import annotations

import ast

from alpenglow.base.errors import ParseError
from alpenglow.base.words import shown

DEEPEST = 500
"""How deep an expression may be; a sum is as deep as it has terms, and Python stops at 1000."""

LONGEST_BITS = 2000
"""How long a number may be: Python prints no int of more than some 14,000 bits."""


def parse_expression(text: str, noun: str) -> ast.expr:
    """Return the tree of an expression; `noun` is what an error calls the text."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    # What is no text to the parser is a ValueError; what is too deep, one of the others.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"{noun} is '{shown(text)}', expected an expression") from error
    if len(text) > DEEPEST:  # a shorter one cannot be deeper, nor a number in it longer
        _limit(tree, f"{noun} '{shown(text)}'")
    return tree


def _limit(tree: ast.expr, what: str) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        for node in level:
            match node:
                case ast.Constant(value=int(value)) if value.bit_length() > LONGEST_BITS:
                    raise ParseError(
                        f"{what} has a number that is too long, "
                        f"expected at most {LONGEST_BITS} bits"
                    )
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise ParseError(f"{what} is nested too deeply, expected at most {DEEPEST} levels")
