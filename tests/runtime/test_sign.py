"""Signed archives: with a key nothing is opened but what its owner signed."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

import alpenglow as ag
import staged_cases
from alpenglow.base.errors import ModelError, OptionError, SignatureError, UnsupportedError
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.runtime.archive import archive, signature
from command import alpenglow, answer


def key_pair(folder: Path, name: str, password: bytes = b"") -> None:
    """Write NAME.pem and NAME.pub, as OpenSSL does."""
    s = serialization
    private = ed25519.Ed25519PrivateKey.generate()
    hidden = s.BestAvailableEncryption(password) if password else s.NoEncryption()
    (folder / f"{name}.pem").write_bytes(
        private.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, hidden)
    )
    (folder / f"{name}.pub").write_bytes(
        private.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")
    g = ag.Graph("small")
    x, w = g.input("x", "f32[2,16]"), g.constant(np.ones((16, 8), np.float32), "w")
    y = g(MatMul(), x, w)
    g.output("y", g(Add(), y, y))
    ag.compile(g).save(tmp_path / "model.ago")
    for name in ("mine", "other"):
        key_pair(tmp_path, name)
    return tmp_path


def test_a_signed_archive_opens_by_its_key_and_without(folder: Path) -> None:
    unsigned = answer("run model.ago")
    alpenglow("sign model.ago --key mine.pem")

    assert answer("run model.ago --key mine.pub") == answer("run model.ago") == unsigned
    x = np.ones((2, 16), np.float32)
    for key in ("mine.pub", Path("mine.pub"), Path("mine.pub").read_bytes()):
        for mapped in (None, True, False):
            np.testing.assert_array_equal(ag.open("model.ago", key=key, mmap=mapped)(x), 32)


def test_an_archive_of_a_staged_model_is_signed_as_any(folder: Path) -> None:
    case = staged_cases.CASES["branches"]
    exe, feeds = ag.compile(case.model()), case.calls()[0]
    expected = exe.run(feeds)["z"]
    exe.save("staged.ago")
    with pytest.raises(SignatureError, match="not signed"):
        ag.open("staged.ago", key="mine.pub")
    alpenglow("sign staged.ago --key mine.pem")

    np.testing.assert_array_equal(ag.open("staged.ago", key="mine.pub").run(feeds)["z"], expected)


def test_what_is_not_signed_by_the_key_is_refused(folder: Path) -> None:
    with pytest.raises(SignatureError, match=r"not signed.*model\.ago"):
        ag.open("model.ago", key="mine.pub")
    alpenglow("sign model.ago --key other.pem -o signed.ago")
    with pytest.raises(SignatureError, match="signed by another key"):
        ag.open("signed.ago", key="mine.pub")
    alpenglow("sign signed.ago --key mine.pem")

    assert ag.open("signed.ago", key="mine.pub")
    assert len(Path("signed.ago").read_bytes()) == (
        len(Path("model.ago").read_bytes()) + signature.NBYTES
    )


def test_a_signature_does_not_fit_another_archive(folder: Path) -> None:
    g = ag.Graph("other")
    g.output("y", g(Add(), g.input("x", "f32[4]"), g.inputs["x"]))
    ag.compile(g).save("small.ago")
    alpenglow("sign small.ago --key mine.pem")
    trailer = Path("small.ago").read_bytes()[-signature.NBYTES :]
    Path("forged.ago").write_bytes(Path("model.ago").read_bytes() + trailer)

    with pytest.raises(SignatureError):
        ag.open("forged.ago", key="mine.pub")


def test_no_byte_of_a_signed_archive_changes_what_it_computes(folder: Path) -> None:
    """Every byte changed, in turn: it is refused, or one of those that nothing depends on."""
    alpenglow("sign model.ago --key mine.pem")
    data = Path("model.ago").read_bytes()
    key = Path("mine.pub").read_bytes()
    x = np.arange(32, dtype=np.float32).reshape(2, 16)
    expected = ag.open("model.ago", key=key)(x)
    refused = 0
    for at in np.random.default_rng(0).permutation(len(data))[:400]:
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        Path("changed.ago").write_bytes(changed)
        try:
            exe = ag.open("changed.ago", key=key)
        except (ModelError, SignatureError):
            refused += 1
            continue
        np.testing.assert_array_equal(exe(x), expected)

    assert refused > 200


def test_a_weight_of_a_signed_archive_is_not_changed_unseen_by_sums(folder: Path) -> None:
    alpenglow("sign model.ago --key mine.pem")
    content = bytearray(Path("model.ago").read_bytes())
    at = content.index(np.ones(8, np.float32).tobytes()) + 5
    same = zlib.crc32(content)
    # The polynomial of the CRC itself, which leaves no rest.
    for i, byte in enumerate(0x1DB710641.to_bytes(5, "little")):
        content[at + i] ^= byte
    assert zlib.crc32(content) == same
    Path("changed.ago").write_bytes(content)

    with pytest.raises(ModelError, match="another checksum"):
        ag.open("changed.ago", key="mine.pub")


def test_a_prefix_that_fits_is_not_enough(folder: Path) -> None:
    alpenglow("sign model.ago --key mine.pem")
    data = Path("model.ago").read_bytes()
    at = data.index(b'"alpenglow"')
    Path("changed.ago").write_bytes(data[:at] + b'"ALPENGLOW"' + data[at + 11 :])

    with pytest.raises(ModelError, match="checksum"):
        ag.open("changed.ago", key="mine.pub")


def test_a_damaged_archive_is_not_signed(folder: Path) -> None:
    data = Path("model.ago").read_bytes()
    Path("short.ago").write_bytes(data[: archive.PREFIX.size + 10])

    assert "damaged" in alpenglow("sign short.ago --key mine.pem", 2).stderr


@pytest.mark.parametrize("bad", ["mine.pem", "model.ago", "missing.pem"])
def test_what_is_no_public_key_is_named(folder: Path, bad: str) -> None:
    alpenglow("sign model.ago --key mine.pem")
    with pytest.raises(OptionError, match=f"the key .*{bad}"):
        ag.open("model.ago", key=bad)


def test_what_is_no_private_key_is_named(folder: Path) -> None:
    key_pair(folder, "hidden", b"secret")

    assert "mine.pub" in alpenglow("sign model.ago --key mine.pub", 2).stderr
    assert "is encrypted" in alpenglow("sign model.ago --key hidden.pem", 2).stderr


def test_a_key_demands_an_archive(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"\x08\x09")

    assert "expected a signed archive" in alpenglow("run model.onnx --key mine.pub", 2).stderr


def test_keys_of_openssl_are_read(folder: Path) -> None:
    try:
        subprocess.run(["openssl", "version"], check=True, capture_output=True)
    except OSError:
        pytest.skip("openssl is not installed")
    for line in ("genpkey -algorithm ed25519 -out p.pem", "pkey -in p.pem -pubout -out p.pub"):
        subprocess.run(["openssl", *line.split()], check=True, capture_output=True)
    alpenglow("sign model.ago --key p.pem")

    assert ag.open("model.ago", key="p.pub")


def test_the_library_is_not_imported_unless_it_is_needed() -> None:
    code = "import sys, alpenglow.runtime.archive.archive; print('cryptography' in sys.modules)"
    ended = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True,
                           check=True)  # fmt: skip

    assert ended.stdout == "False\n"


def test_without_the_library_it_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature, "find_spec", lambda name: None)

    with pytest.raises(UnsupportedError, match=r"alpenglow\[sign\]"):
        ag.open("model.ago", key="mine.pub")
