"""The memory that compilations take outside Python is given back."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import alpenglow as ag
from alpenglow.machines.cpu.assemble import assemble
from residual_model import small

STATM = Path("/proc/self/statm")
KERNEL = """define void @f(ptr %p, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %q = getelementptr float, ptr %p, i64 %i
  %v = load float, ptr %q
  %w = fadd float %v, 1.0
  store float %w, ptr %q
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""

pytestmark = pytest.mark.skipif(not STATM.exists(), reason="asks Linux for the resident memory")


def test_assembling_a_hundred_kernels_takes_no_memory_for_good() -> None:
    target = ag.Target.parse("cpu")
    for _ in range(10):
        assemble(KERNEL, target)
    before = resident()
    for _ in range(100):
        assemble(KERNEL, target)

    # What llvmlite does not free by itself is 70 KB a kernel.
    assert resident() - before < 3 << 20


@pytest.mark.slow
def test_sixty_compilations_take_no_memory_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")
    model = small()
    for _ in range(10):
        ag.compile(model, shapes={"x": (1, 3, 8, 8)}, threads=1)
    gc.collect()
    before = resident()
    for _ in range(60):
        ag.compile(model, shapes={"x": (1, 3, 8, 8)}, threads=1)
    gc.collect()

    # It was 0.5 MB each.
    assert resident() - before < 10 << 20


def resident() -> int:
    return int(STATM.read_text().split()[1]) * 4096
