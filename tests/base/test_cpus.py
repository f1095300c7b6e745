"""How many threads: what control groups grant, what the environment says, and what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.cpus import cpu_quota, default_threads, most_workers
from alpenglow.base.errors import OptionError
from alpenglow.machines.cpu.team import Team
from alpenglow.ops.elementwise.arithmetic import Neg

pytestmark = pytest.mark.usefixtures("no_cache")

V2 = "0::{}\n"
V1 = "9:name=systemd:/\n4:cpu,cpuacct:{}\n2:cpuset:/\n"


def system(root: Path, groups: str, files: dict[str, str]) -> Path:
    """Write the folders of a system in which this process is in `groups`."""
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("limits", "cpus"),
    [
        ({"a/b/c": "max 100000"}, None),
        ({"a/b/c": "200000 100000"}, 2),
        ({"a/b/c": "150000 100000"}, 2),
        ({"a/b/c": "1000 100000"}, 1),
        ({"a/b/c": "max 100000", "a": "300000 100000"}, 3),
        ({"a/b/c": "400000 100000", "a/b": "100000 50000", "a": "max 100000"}, 2),
        ({"a/b/other": "100000 100000"}, None),
        ({".": "100000 100000"}, 1),
        ({"a": "", "a/b": "nonsense", "a/b/c": "-1 0", ".": "7 0"}, None),
        ({"a": "² 100000", "a/b": "1 2 3"}, None),
    ],
)
def test_all_groups_above_limit_a_process(
    tmp_path: Path, limits: dict[str, str], cpus: int | None
) -> None:
    files = {f"sys/fs/cgroup/{group}/cpu.max": text for group, text in limits.items()}
    root = system(tmp_path, V2.format("/a/b/c"), files)

    assert cpu_quota(root) == cpus


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [("-1", "100000", None), ("250000", "100000", 3), ("50000", "100000", 1), ("x", "y", None)],
)
def test_groups_of_version_1_limit_a_process(
    tmp_path: Path, mount: str, quota: str, period: str, cpus: int | None
) -> None:
    folder = f"sys/fs/cgroup/{mount}/docker/1f"
    files = {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}

    assert cpu_quota(system(tmp_path, V1.format("/docker/1f"), files)) == cpus


def test_in_a_container_the_path_may_be_the_host_s(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "100000 100000\n"}

    assert cpu_quota(system(tmp_path, V2.format("/../../docker/1f"), files)) == 1


def test_both_versions_beside_each_other_count(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/unified/a/cpu.max": "max 100000",
        "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "200000",
        "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
    }

    assert cpu_quota(system(tmp_path, "1:cpu:/a\n0::/a\n", files)) == 2


@pytest.mark.parametrize("groups", ["", "\n::\n0:", "nonsense", "4:cpu", "0::\0"])
def test_what_cannot_be_understood_is_no_limit(tmp_path: Path, groups: str) -> None:
    assert cpu_quota(system(tmp_path, groups, {})) is None
    assert cpu_quota(tmp_path / "nothing") is None


@pytest.mark.parametrize(("named", "found"), [("3", "3"), (" 1024 ", "1024"), ("", None)])
def test_the_environment_names_the_number(named: str, found: str | None) -> None:
    expected = str(default_threads()) if found is None else found

    assert asked(named).stdout.strip() == expected


@pytest.mark.parametrize("named", ["0", "-1", "1025", "x", "2.0", "²", "9" * 5000])
@pytest.mark.sampled(4)
def test_the_environment_names_a_number(named: str) -> None:
    found = asked(named)

    assert found.returncode != 0 and "ALPENGLOW_THREADS is" in found.stderr


def asked(named: str) -> subprocess.CompletedProcess[str]:
    """Ask another process for its number of threads."""
    source = "from alpenglow.base.cpus import default_threads; print(default_threads())"
    environment = {**os.environ, "ALPENGLOW_THREADS": named}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("threads", [0, -1, 1025, 10**9, True, 2.0, "2"])
def test_what_is_no_number_of_threads_is_refused(threads: Any, tmp_path: Path) -> None:
    path = tmp_path / "negated.ago"
    ag.compile(negated("f32[4]")).save(path)

    with pytest.raises(OptionError, match="threads is"):
        ag.compile(negated("f32[4]"), threads=threads)
    with pytest.raises(OptionError, match="threads is"):
        ag.open(path, threads=threads)


@pytest.mark.parametrize("shape", ["f32[4000,500]", "f32[n,500]"])
def test_no_more_threads_are_started_than_are_of_use(shape: str) -> None:
    exe = ag.compile(negated(shape), threads=1024)
    Team.shared().stop()
    before = threading.active_count()
    x = np.ones((4000, 500), np.float32)

    assert (exe(x) == -x).all()
    # Beside the helpers there is the thread that a call runs on of which nothing is known yet.
    assert threading.active_count() - before <= most_workers()


def test_a_table_of_few_parts_takes_few_threads() -> None:
    exe = ag.compile(negated("f32[1]"), threads=1024)
    Team.shared().stop()
    exe(np.ones(1, np.float32))

    assert not [t for t in threading.enumerate() if re.fullmatch(r"alpenglow-\d+", t.name)]


def negated(shape: str) -> ag.Graph:
    g = ag.Graph("negated")
    g.output("y", g(Neg(), g.input("x", shape)))
    return g
