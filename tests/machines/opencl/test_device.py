"""Devices of OpenCL: memory, copies, kernels, and what is said when something fails."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from ctypes import c_void_p
from pathlib import Path

import numpy as np
import pytest

from alpenglow.base.errors import DeviceError
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.machines.api import Argument, Artifact, Launch
from alpenglow.machines.opencl import program
from alpenglow.machines.opencl.device import Code, Memory, OpenClDevice, device_of
from alpenglow.machines.opencl.devices import devices, find
from alpenglow.machines.opencl.library import library
from alpenglow.machines.opencl.stream import Event
from alpenglow.program import Program

pytestmark = pytest.mark.opencl

NAMES = {"intel": "Intel(R) OpenCL", "pocl": "Portable Computing Language"}

ADD = """
__kernel void add(__global uchar *y_base, __global uchar *x_base, long n, long y_at, long x_at) {
  __global float *y = (__global float *)(y_base + y_at);
  __global float *x = (__global float *)(x_base + x_at);
  long i = get_global_id(0) + get_global_size(0) * get_global_id(1);
  if (i < n) y[i] += x[i];
}
"""

SLOW = """
__kernel void slow(__global float *y, long y_at) {
  float s = y[0];
  for (long i = 0; i < 200000000; i++) s = s * 0.5f + 1.0f;
  y[0] = s;
}
"""


@pytest.fixture(params=NAMES)
def device(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenClDevice:
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    (facts,) = [d for d in devices() if d.platform == NAMES[request.param]]
    return device_of(facts)


@pytest.fixture
def memory(device: OpenClDevice) -> Iterator[Memory]:
    memory = device.allocate(4096)
    yield memory
    device.free(memory)


def installed(device: OpenClDevice, **objects: str) -> Code:
    texts = {name: text.encode() for name, text in objects.items()}
    return device.install(
        Artifact(Target.parse("interpreter"), Program("nothing", {}, (), (), ()), texts, ())
    )


def put(device: OpenClDevice, memory: Memory, offset: int, array: Array) -> None:
    device.wait(device.upload(memory, offset, array.view(np.uint8)))


def got(device: OpenClDevice, memory: Memory, offset: int, count: int) -> Array:
    array = np.zeros(count, np.float32)
    device.wait(device.download(memory, offset, array.view(np.uint8)))
    return array


def test_a_device_is_found_by_number_and_name() -> None:
    listed = devices()

    assert [d.index for d in listed] == list(range(len(listed)))
    assert find("") == listed[0]
    assert find("1") == listed[1]
    assert find("PoCL").platform == NAMES["pocl"]
    assert find("intel").platform == NAMES["intel"]
    for words in ("7", "nobody", "\0", "99999999999999999999"):
        with pytest.raises(DeviceError, match=r"OpenCL device is .*expected one of 0 "):
            find(words)


def test_a_device_says_what_it_is(device: OpenClDevice) -> None:
    facts = device.facts

    assert facts.kind == "cpu"
    assert facts.lanes in (4, 8, 16)
    assert min(facts.units, facts.most_threads, facts.memory_nbytes, facts.largest_nbytes) > 0
    assert facts.alignment >= 64
    assert re.fullmatch(r"[123]\.\d", facts.c_version)
    assert facts.target == f"opencl:{facts.index}"


def test_a_device_is_opened_once(device: OpenClDevice) -> None:
    assert device_of(find(str(device.facts.index))) is device


def test_what_is_uploaded_is_downloaded(device: OpenClDevice, memory: Memory) -> None:
    x = np.arange(100, dtype=np.float32)
    put(device, memory, 64, x)
    device.wait(device.copy((memory, 2048), (memory, 64), x.nbytes))

    assert (got(device, memory, 2048, 100) == x).all()


def test_nothing_is_copied_where_nothing_is(device: OpenClDevice) -> None:
    memory, nothing = device.allocate(0), np.zeros(0, np.uint8)
    device.wait(device.upload(memory, 0, nothing))
    device.wait(device.copy((memory, 0), (memory, 0), 0))
    device.wait(device.download(memory, 0, nothing))
    device.wait(None)
    device.free(memory)


def test_a_list_runs_in_order_with_offsets_and_numbers(
    device: OpenClDevice, memory: Memory
) -> None:
    code = installed(device, add=ADD)
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    places: tuple[Argument, ...] = ((memory, 1024), (memory, 4))
    launches = [
        Launch("add", places, (8,), (1, 2), (4,)),
        Launch("add", places, (3,), (8,)),
        Launch("add", places, (8,), (0,), (4,)),
        Launch("add", places, (8,), (4, 0)),
    ]
    recording = device.record(code, launches)
    ready = [device.upload(memory, 4, x.view(np.uint8)), None]
    ready.append(device.upload(memory, 1024, y.view(np.uint8)))
    event = device.replay(recording, ready)
    actual = np.zeros(8, np.float32)
    device.wait(device.download(memory, 1024, actual.view(np.uint8), [event]))

    assert (actual == x + np.where(x < 3, x, 0)).all()


def test_an_empty_list_comes_after_what_it_waits_for(device: OpenClDevice, memory: Memory) -> None:
    code = installed(device, slow=SLOW)
    slow = device.replay(device.record(code, [Launch("slow", ((memory, 0),))]))
    device.wait(device.replay(device.record(code, []), [slow]))

    assert slow.status() == 0


def test_memory_is_freed_behind_what_uses_it(device: OpenClDevice, memory: Memory) -> None:
    code = installed(device, slow=SLOW)
    short = device.allocate(1 << 20)
    event = device.replay(device.record(code, [Launch("slow", ((short, 0),))]))
    device.free(short)
    device.wait(event)
    put(device, memory, 0, np.ones(4, np.float32))

    assert (got(device, memory, 0, 4) == 1).all()


def test_arrays_of_the_host_live_until_they_are_copied(
    device: OpenClDevice, memory: Memory
) -> None:
    code = installed(device, slow=SLOW)
    slow = device.replay(device.record(code, [Launch("slow", ((memory, 0),))]))
    event = device.upload(memory, 64, np.full(400, 7, np.uint8), [slow])
    for _ in range(100):
        np.full(400, 1, np.uint8)
    device.wait(event)

    assert (got(device, memory, 64, 100).view(np.uint8) == 7).all()


def test_calls_leave_memory_as_it_was(device: OpenClDevice, memory: Memory) -> None:
    before = device.in_use_nbytes
    code = installed(device, add=ADD)
    other = device.allocate(1000)
    recording = device.record(code, [Launch("add", ((memory, 0), (other, 0)), (4,), (4,))] * 3)
    sent, resident = np.zeros(64, np.uint8), 0
    for call in range(10_000):
        event = device.replay(recording, [device.upload(other, 0, sent)])
        device.wait(device.download(memory, 0, sent, [event]))
        if call == 2_000:
            resident = resident_nbytes()
    grown = resident_nbytes() - resident
    device.free(other)

    assert device.in_use_nbytes == before
    assert grown < 2 << 20


def resident_nbytes() -> int:
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in x]
    return int(line.split()[1]) << 10


def test_a_device_without_memory_says_so_and_goes_on(device: OpenClDevice, memory: Memory) -> None:
    before = device.in_use_nbytes
    for nbytes in (1 << 50, device.facts.memory_nbytes, 1 << 62):
        with pytest.raises(MemoryError) as caught:
            device.allocate(nbytes)
        assert isinstance(caught.value, DeviceError)
        assert re.search(
            r"has not [\d.]+ GB more memory: .* in use here, and .* at once", str(caught.value)
        )
    put(device, memory, 0, np.ones(4, np.float32))

    assert device.in_use_nbytes == before
    assert (got(device, memory, 0, 4) == 1).all()


def test_a_refused_kernel_is_named_with_the_log(device: OpenClDevice) -> None:
    with pytest.raises(DeviceError, match=r"refuses kernel 'bad': .*nobody") as caught:
        installed(device, add=ADD, bad="__kernel void bad(long n) { nobody(n); }")

    assert len(str(caught.value)) < 5000


def test_a_kernel_in_groups_too_large_is_named(device: OpenClDevice, memory: Memory) -> None:
    code = installed(device, add=ADD)
    with pytest.raises(DeviceError, match=r"kernel 'add' has groups of \d+ threads"):
        device.record(code, [Launch("add", ((memory, 0), (memory, 0)), (1,), (1,), (1 << 20,))])


def test_a_kernel_given_too_little_or_much_is_named(device: OpenClDevice, memory: Memory) -> None:
    code = installed(device, add=ADD)
    with pytest.raises(DeviceError, match="give kernel 'add' its argument 5"):
        device.record(code, [Launch("add", ((memory, 0), (memory, 0)), (1, 2))])
    with pytest.raises(DeviceError, match="begin kernel 'add'"):
        device.wait(device.replay(device.record(code, [Launch("add", ((memory, 0),))])))


def test_a_built_program_is_kept(device: OpenClDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(device, add=ADD)
    with monkeypatch.context() as patch:
        patch.setattr(program, "_from_text", None)  # nobody compiles again
        code = installed(device, add=ADD)

    assert "add" in code.programs


def test_a_kept_program_that_is_of_no_use_is_made_again(
    device: OpenClDevice, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_binary", lambda _: b"no program")
    installed(device, add=ADD)
    monkeypatch.undo()
    code = installed(device, add=ADD)
    put(device, memory, 0, np.ones(8, np.float32))
    device.wait(
        device.replay(device.record(code, [Launch("add", ((memory, 0), (memory, 0)), (4,), (4,))]))
    )

    assert (got(device, memory, 0, 8) == [2, 2, 2, 2, 1, 1, 1, 1]).all()


def test_texts_say_which_language_they_need() -> None:
    facts = find("pocl")

    assert next(program.options(facts, ADD)).startswith("-cl-std=CL1.2 ")
    assert next(program.options(facts, f"// OpenCL C 3.0\n{ADD}")).startswith("-cl-std=CL3.0 ")


def test_a_kernel_alone_is_timed(device: OpenClDevice, memory: Memory) -> None:
    code = installed(device, slow=SLOW, add=ADD)
    short = device.seconds(code, Launch("add", ((memory, 0), (memory, 0)), (4,), (4,)))
    long = device.seconds(code, Launch("slow", ((memory, 0),)))

    assert 0 < short < long < 60
    assert device.seconds(code, Launch("slow", ((memory, 0),), (), (0,))) == 0


def test_what_fails_while_it_runs_is_an_error_of_the_device(
    device: OpenClDevice, memory: Memory
) -> None:
    if device.facts.platform == NAMES["pocl"]:
        pytest.skip("PoCL 3.1 ends the process when one of two commands fails")
    create, settle = library().clCreateUserEvent, library().clSetUserEventStatus
    create.restype, create.argtypes = c_void_p, [c_void_p, c_void_p]
    lost = Event(c_void_p(create(device.context, None)))
    code = installed(device, add=ADD)
    launch = Launch("add", ((memory, 0), (memory, 0)), (4,), (4,))
    event = device.replay(device.record(code, [launch] * 2), [lost])
    settle(lost.handle, -5)
    with pytest.raises(DeviceError, match="the device failed while it ran: CL_"):
        device.wait(event)
    put(device, memory, 0, np.ones(4, np.float32))

    assert (got(device, memory, 0, 4) == 1).all()


def test_threads_share_a_device(device: OpenClDevice) -> None:
    code = installed(device, add=ADD)
    wrong: list[object] = []

    def work(seed: int) -> None:
        memory = device.allocate(1 << 12)
        places: tuple[Argument, ...] = ((memory, 0), (memory, 2048))
        recording = device.record(code, [Launch("add", places, (64,), (64,))] * 5)
        x = np.full(64, seed, np.float32)
        for _ in range(200):
            ready = [device.upload(memory, at, x.view(np.uint8)) for at in (0, 2048)]
            actual = np.zeros(64, np.float32)
            event = device.replay(recording, ready)
            device.wait(device.download(memory, 0, actual.view(np.uint8), [event]))
            if not (actual == 6 * x).all():
                wrong.append(actual)
        device.free(memory)

    threads = [threading.Thread(target=work, args=(n + 1,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


LEAVE = f"""
import numpy as np
from alpenglow.machines.api import Artifact, Launch
from alpenglow.machines.opencl.device import device_of
from alpenglow.machines.opencl.devices import find
device = device_of(find(NAME))
code = device.install(Artifact(None, None, dict(slow={SLOW.encode()!r}), ()))
memory = device.allocate(1 << 20)
recording = device.record(code, [Launch("slow", ((memory, 0),))])
event = device.replay(recording)
later = device.upload(memory, 0, np.ones(1 << 20, np.uint8), [event])
print("left")
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_process_ends_while_a_device_works(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVE.replace("NAME", repr(name))],
        capture_output=True, text=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
