"""Memory begins where vectors like it, and where pages are huge if it is large."""

from __future__ import annotations

import pytest

from alpenglow.base.memory import ALIGNMENT, HUGE_PAGE, aligned_bytes


@pytest.mark.parametrize("nbytes", [0, 1, 64, 5000, HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 5])
def test_memory_begins_at_a_line_or_a_huge_page(nbytes: int) -> None:
    memory = aligned_bytes(nbytes)
    memory[...] = 1  # all of it is there

    assert memory.nbytes == nbytes
    assert memory.ctypes.data % (HUGE_PAGE if nbytes >= HUGE_PAGE else ALIGNMENT) == 0
