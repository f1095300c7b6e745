"""The command line as tests call it."""

from __future__ import annotations

import json
import shlex
from typing import Any

from click.testing import CliRunner, Result

from alpenglow.cli import cli


def alpenglow(line: str, code: int = 0) -> Result:
    """Run a command and assert how it exits."""
    result = CliRunner().invoke(cli, shlex.split(line))
    assert result.exit_code == code, (line, result.output)
    return result


def answer(line: str, code: int = 0) -> Any:
    """Return what a command answers in JSON."""
    return json.loads(alpenglow(f"{line} --json", code).stdout)
