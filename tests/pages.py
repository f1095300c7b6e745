"""Pages of documentation as programs: their Python blocks run in order, in one namespace.

What a block prints stands behind it, in a ``text`` block.  A block of ``python PACKAGE`` runs where
that package is installed.  `python tests/pages.py PAGE` runs a page and writes what its blocks
print as JSON, null for those that did not run; a process of its own keeps the operators and rules
that pages define apart from ours.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

BLOCK = re.compile(
    r"^```python(?P<package> \w+)?\n(?P<code>.*?)^```\n(?:\n```text\n(?P<text>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def printed(page: Path) -> Iterator[str | None]:
    """Run the blocks of a page; yield what each prints, None if its package is not installed."""
    # A module, so that entry points can name what a page defines.
    module = sys.modules["page"] = ModuleType("page")
    scope = module.__dict__
    text = page.read_text()
    for block in BLOCK.finditer(text):
        if block["package"] and find_spec(block["package"].strip()) is None:
            yield None
            continue
        # The blank lines make the line numbers of errors those of the page.
        lines = "\n" * text.count("\n", 0, block.start("code"))
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(lines + block["code"], page, "exec"), scope)
        yield "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip()


def with_outputs(text: str, outputs: list[str | None]) -> str:
    """Return the text of a page with these outputs behind its blocks; None: what is there."""
    rest = iter(outputs)

    def block(match: re.Match[str]) -> str:
        code = f"```python{match['package'] or ''}\n{match['code']}```\n"
        output = next(rest)
        if output is None:
            return match[0]
        return f"{code}\n```text\n{output}\n```\n" if output else code

    return BLOCK.sub(block, text)


def assert_printed(page: Path, folder: Path, bless: bool) -> list[str | None]:
    """Assert that the blocks of a page print what the page says, run in a folder; return that."""
    done = subprocess.run(
        [sys.executable, __file__, str(page)],
        cwd=folder,
        env={**os.environ, "ALPENGLOW_CACHE": str(folder)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    outputs: list[str | None] = json.loads(done.stdout.splitlines()[-1])
    actual = page.read_text()
    expected = with_outputs(actual, outputs)
    if bless:
        page.write_text(expected)
        actual = expected

    assert expected == actual
    assert any(outputs)
    return outputs


if __name__ == "__main__":
    json.dump(list(printed(Path(sys.argv[1]))), sys.stdout)
