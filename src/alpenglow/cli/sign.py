"""`alpenglow sign`: put a signature under an archive, so that others know whose it is."""

from __future__ import annotations

from pathlib import Path

import click

from alpenglow.cli import TRACEBACK, files
from alpenglow.cli.help import Command
from alpenglow.cli.output import examples, show
from alpenglow.runtime.archive import archive


def _note_traceback(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[TRACEBACK] = value


@click.command(
    "sign",
    cls=Command,
    epilog=examples("""
openssl genpkey -algorithm ed25519 -out private.pem
openssl pkey -in private.pem -pubout -out public.pem
alpenglow sign model.ago --key private.pem
alpenglow run model.ago --key public.pem
"""),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), required=True,
              metavar="PRIVATE.pem", help="The private Ed25519 key, in PEM.")  # fmt: skip
@click.option("-o", "output", type=files.Written(), metavar="OUTPUT",
              help="The signed archive to write.  [default: FILE itself]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--traceback", is_flag=True, expose_value=False, callback=_note_traceback,
              help="If an error occurs, print the traceback too.")  # fmt: skip
def command(file: Path, key: Path, output: Path | None, as_json: bool) -> None:
    """Sign the archive FILE with a private key, and replace its signature if it has one.

    The archive is first checked for damage.  A user with the public key checks the signature with
    --key or `ag.open(path, key=…)`, and an archive that is unsigned or changed raises an error.
    """
    target = output or file
    if not (target.is_file() and file.is_file() and target.samefile(file)):
        files.refuse_overwriting(click.get_current_context())
    archive.sign(file, key, target)
    show({"file": str(target)}, [f"{target}: signed"], as_json)
