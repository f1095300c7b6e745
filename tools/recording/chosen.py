"""Plugin of pytest: run the tests that `tools/changed.py` chose, in its order, until a time.

CHOSEN is a file of JSON:

| key | value |
|---|---|
| `order` | tests in the order in which they run; a test file or a function stands for its tests |
| `known` | all tests of the record |
| `functions` | test functions, whose unrecorded cases run last |
| `until` | the time (`time.time()`) from which on tests are skipped |
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

CHOSEN = json.loads(Path(os.environ["CHOSEN"]).read_text(encoding="utf-8"))
PLACES = {name: k for k, name in enumerate(CHOSEN["order"])}
KNOWN = frozenset(CHOSEN["known"])
FUNCTIONS = frozenset(CHOSEN["functions"])


def place(name: str) -> int | None:
    """Return the place of a test in the order, or None if it does not run."""
    for prefix in (name, name.partition("[")[0], name.partition("::")[0]):
        if prefix in PLACES:
            return PLACES[prefix]
    if name not in KNOWN and name.partition("[")[0] in FUNCTIONS:
        return len(PLACES)
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {item: place(item.nodeid) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if places[item] is None])
    items[:] = sorted((i for i in items if places[i] is not None), key=lambda i: places[i] or 0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > CHOSEN["until"]:
        pytest.skip("left out: the time is over")
