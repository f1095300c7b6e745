"""The store: what is put is got, and nothing on disk can do harm."""

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from alpenglow.base import store as store_module
from alpenglow.base.store import HEADER_NBYTES, Store, StoreWarning

posix = os.name == "posix"


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.entry"))


def leftovers(folder: Path) -> list[Path]:
    return sorted(folder.glob(".new-*"))


def python(source: str, *args: object) -> subprocess.Popen[bytes]:
    """Start a process that runs `source`, with the package as this one sees it."""
    path = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-c", source, *map(str, args)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE)


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path / "deep" / "store" if request.param == "disk" else None)


@pytest.mark.parametrize("content", [b"", b"x", os.urandom(100_000)])
def test_what_is_put_is_got(store: Store, content: bytes) -> None:
    store.put("key: any text, ü", content)

    assert store.get("key: any text, ü") == content
    assert store.open_map("key: any text, ü") == memoryview(content)
    assert store.get("another") is None and store.open_map("another") is None


def test_a_later_content_replaces_an_earlier_one(store: Store) -> None:
    store.put("key", b"one")
    store.put("key", b"two, longer")

    assert store.get("key") == b"two, longer"


def test_a_thing_is_made_once(store: Store) -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"made"

    assert [store.get_or_make("key", make) for _ in range(3)] == [b"made"] * 3
    assert made == [1]


def test_another_process_gets_what_one_put(tmp_path: Path) -> None:
    Store(tmp_path / "s").put("key", b"content")
    source = "import sys, pathlib; from alpenglow.base.store import Store\n"
    source += "print(Store(pathlib.Path(sys.argv[1])).get('key'))"

    assert python(source, tmp_path / "s").communicate()[0].strip() == b"b'content'"


def test_a_mapped_content_is_aligned_and_outlives_its_entry(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.put("key", b"abc")
    view = store.open_map("key")
    if posix:
        entries(tmp_path / "s")[0].unlink()

    assert view is not None and view.readonly
    assert bytes(view) == b"abc" and HEADER_NBYTES % 64 == 0


@pytest.mark.skipif(not posix, reason="files have no modes here")
def test_folder_and_entries_are_the_users_alone(tmp_path: Path) -> None:
    Store(tmp_path / "s").put("key", b"content")

    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    assert entries(tmp_path / "s")[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", [0, 8, 39, 50, HEADER_NBYTES, HEADER_NBYTES + 99])
def test_a_flipped_bit_is_noticed_and_the_entry_made_again(tmp_path: Path, at: int) -> None:
    store = Store(tmp_path / "s")
    store.put("key", bytes(100))
    (path,) = entries(tmp_path / "s")
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 4
    path.write_bytes(damaged)

    with pytest.warns(StoreWarning, match="damaged"):
        assert store.open_map("key") is None
    assert store.get_or_make("key", lambda: bytes(100)) == bytes(100) == store.get("key")


@pytest.mark.parametrize("nbytes", [0, 10, HEADER_NBYTES, HEADER_NBYTES + 50])
def test_an_entry_cut_short_is_noticed(tmp_path: Path, nbytes: int) -> None:
    store = Store(tmp_path / "s")
    store.put("key", bytes(100))
    (path,) = entries(tmp_path / "s")
    path.write_bytes(path.read_bytes()[:nbytes])

    with pytest.warns(StoreWarning, match="damaged"):
        assert store.get("key") is None


def test_an_entry_under_the_name_of_another_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.put("one", b"1")
    (path,) = entries(tmp_path / "s")
    content = path.read_bytes()
    path.unlink()
    store.put("two", b"2")
    entries(tmp_path / "s")[0].write_bytes(content)

    with pytest.warns(StoreWarning, match="damaged"):
        assert store.get("two") is None


@pytest.mark.skipif(not posix, reason="files have no modes here")
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    store = Store(tmp_path / "s")
    store.put("key", b"content")
    (tmp_path / "s").chmod(mode)

    with pytest.warns(StoreWarning, match="by other users") as caught:
        assert store.get("key") is None and store.get("key") is None
        store.put("other", b"content")
    assert len(caught) == 1 and len(entries(tmp_path / "s")) == 1


@pytest.mark.skipif(not posix, reason="files have no modes here")
def test_an_entry_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.put("key", b"content")
    entries(tmp_path / "s")[0].chmod(0o666)

    with pytest.warns(StoreWarning, match="by other users") as caught:
        assert store.get("key") is None and store.get("key") is None
    assert len(caught) == 1
    assert store.get_or_make("key", lambda: b"new") == b"new" == store.get("key")


@pytest.mark.skipif(not posix, reason="making links needs a privilege here")
def test_a_link_in_the_place_of_an_entry_is_not_followed(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.put("key", b"content")
    (path,) = entries(tmp_path / "s")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")

    assert store.get("key") is None


@pytest.mark.skipif(not posix or os.geteuid() != 0, reason="only root gives files away")
def test_what_belongs_to_somebody_else_is_not_used(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.put("key", b"content")
    os.chown(tmp_path / "s", 12345, 12345)

    with pytest.warns(StoreWarning, match="another user"):
        assert store.get("key") is None


def test_where_no_folder_can_be_the_store_warns_once_and_does_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        store = Store(folder)
        with pytest.warns(StoreWarning, match="nothing more is kept") as caught:
            made = [store.get_or_make("key", lambda: b"made") for _ in range(3)]

        assert made == [b"made"] * 3 and len(caught) == 1


FULL_DISK = """
import pathlib, resource, signal, sys, warnings
from alpenglow.base.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(pathlib.Path(sys.argv[1]))
store.put("small", b"fits")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        assert store.get_or_make("large", lambda: bytes(5000)) == bytes(5000)
    assert store.get("small") == b"fits"
print(len(caught), *(w.category.__name__ for w in caught))
"""


@pytest.mark.skipif(not posix, reason="sizes cannot be limited here")
def test_when_the_disk_is_full_the_store_warns_once_and_does_without(tmp_path: Path) -> None:
    said = python(FULL_DISK, tmp_path / "s").communicate()[0].split()

    assert said == [b"1", b"StoreWarning"]
    assert len(entries(tmp_path / "s")) == 1 and leftovers(tmp_path / "s") == []


def test_the_longest_unused_go_when_the_store_is_full(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", capacity_nbytes=10_000)
    hour = 3600.0
    for i in range(9):
        store.put(f"key {i}", bytes(1000))
        age = time.time() - (20 - i) * hour
        os.utime(store._path(tmp_path / "s", f"key {i}"), (age, age))
    assert store.get("key 0") is not None  # used: it is the youngest now
    store.put("one too many", bytes(1000))
    kept = [i for i in range(9) if store.get(f"key {i}") is not None]

    assert kept == [0, 3, 4, 5, 6, 7, 8] and store.get("one too many") is not None


def test_a_store_in_memory_is_bounded_too() -> None:
    store = Store(None, capacity_nbytes=100)
    for i in range(5):
        store.put(f"key {i}", bytes(30))
        store.get("key 0")

    assert [i for i in range(5) if store.get(f"key {i}") is not None] == [0, 3, 4]


WRITER = """
import pathlib, sys
from alpenglow.base.store import Store
store = Store(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
turn = 0
while turn != int(sys.argv[2]):
    turn += 1
    for i in range(8):
        content = store.get_or_make(f"shared {i}", lambda: bytes([i]) * 300_000)
        assert content == bytes([i]) * 300_000, i
        store.put(f"rewritten {i}", bytes([turn % 256]) * 1_000_000)
"""


def test_processes_share_a_folder(tmp_path: Path) -> None:
    strict = "import warnings; warnings.simplefilter('error')" + WRITER
    writers = [python(strict, tmp_path / "s", 5) for _ in range(2)]
    for writer in writers:
        writer.communicate()

    assert [writer.returncode for writer in writers] == [0, 0]
    assert len(entries(tmp_path / "s")) == 16 and leftovers(tmp_path / "s") == []


@pytest.mark.skipif(not posix, reason="there is no kill -9 here")
def test_a_killed_writer_does_no_harm(tmp_path: Path) -> None:
    for turn in range(5):
        writer = python(WRITER, tmp_path / "s", -1)
        assert writer.stdout is not None and writer.stdout.readline().strip() == b"ready"
        store = Store(tmp_path / "s")
        while store.get("rewritten 1") is None:
            pass
        for _ in range(10 * turn):  # let it write for a while, each time longer
            store.get("rewritten 7")
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        contents = [store.get(f"rewritten {i}") for i in range(8)]

    assert all(c is None or (len(set(c)), len(c)) == (1, 1_000_000) for c in contents)


def test_what_killed_writers_left_is_removed_after_an_hour(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    old, young = tmp_path / "s" / ".new-1-old", tmp_path / "s" / ".new-2-young"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    age = time.time() - 4000
    os.utime(old, (age, age))
    Store(tmp_path / "s").put("key", b"content")

    assert leftovers(tmp_path / "s") == [young]


def test_a_folder_is_looked_through_once_by_all_stores_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def look(folder: Path, capacity_nbytes: int) -> int:
        looks.append(folder)
        return 0

    monkeypatch.setattr(store_module, "_tidy", look)
    for i in range(5):
        Store(tmp_path / "s", capacity_nbytes=3000).put(f"key {i}", bytes(1000))

    # At first, and when more than 3,000 bytes have been added since.
    assert looks == [tmp_path / "s"] * 2
