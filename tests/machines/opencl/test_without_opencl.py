"""What is said where there is no loader of OpenCL, no driver, or one that is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from alpenglow.base.errors import DeviceError
from alpenglow.machines.opencl import runtimes
from alpenglow.machines.opencl.library import check, opened

LIST = "from alpenglow.machines.opencl.devices import devices; devices()"


def test_a_missing_loader_is_named_and_what_to_install() -> None:
    with pytest.raises(DeviceError, match="there is no OpenCL on this machine") as caught:
        opened(["libnobody.so.1"])

    assert "libnobody.so.1" in str(caught.value)
    assert "pip install intel-opencl-rt" in str(caught.value)


def test_a_library_that_is_no_loader_is_passed_over() -> None:
    with pytest.raises(DeviceError, match="there is no OpenCL on this machine"):
        opened(["libc.so.6"])


def test_nothing_is_opened_by_an_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import alpenglow.machines.opencl.device; "
         "print('libOpenCL' in open('/proc/self/maps').read())"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux lists what is loaded")

    assert done.stdout.strip() == "False", done.stderr


def test_codes_have_the_names_of_the_specification() -> None:
    with pytest.raises(DeviceError, match="OpenCL cannot paint: CL_INVALID_VALUE"):
        check(-30, "paint")
    with pytest.raises(DeviceError, match="code -9876"):
        check(-9876, "paint")
    check(0, "paint")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/nowhere/libdriver.so\n", "driver.icd names /nowhere/libdriver.so, which is not there"),
        ("libnodriver.so.7\n", "driver.icd names libnodriver.so.7, which cannot be loaded"),
        ("no\0name\n", "driver.icd names no\\x00name, which cannot be loaded"),
        ("libc.so.6\n", "driver.icd names libc.so.6, which can be loaded but has no device"),
    ],
)
def test_a_driver_that_is_of_no_use_is_named(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "driver.icd").write_text(text)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))

    assert told in runtimes.without_runtime()


def test_an_icd_file_may_be_named_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.icd").write_text("/nowhere/libdriver.so")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "one.icd"))

    assert "/nowhere/libdriver.so, which is not there" in runtimes.without_runtime()


def test_a_driver_of_the_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setenv("OCL_ICD_FILENAMES", "/nowhere/libother.so")

    assert runtimes.without_runtime() == (
        ": OCL_ICD_FILENAMES names /nowhere/libother.so, which is not there"
    )


def test_a_folder_without_drivers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "none"))

    assert f"there is no .icd file in {tmp_path / 'none'}" in runtimes.without_runtime()


@pytest.mark.parametrize("text", ["/nowhere/libdriver.so", "", "gar\1bage"])
@pytest.mark.sampled(1)
def test_a_broken_driver_is_an_error_of_the_device(text: str, tmp_path: Path) -> None:
    (tmp_path / "driver.icd").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", LIST], capture_output=True, text=True, timeout=60,
        env={**os.environ, "OCL_ICD_VENDORS": str(tmp_path)},
    )  # fmt: skip

    assert done.returncode == 1
    last = done.stderr[done.stderr.index("DeviceError:") :]
    assert "there is no OpenCL" in last or "driver.icd" in last
