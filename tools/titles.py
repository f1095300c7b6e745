"""Check the titles of commits: `area: verb object`, at most 72 characters, one idea.

    python tools/titles.py [REVISION]     list the faulty titles since REVISION

Without REVISION, the check begins after the commit that `tools/titles_since.txt` names.  Merge
commits are skipped.  A copy of the sources without that commit, for example an sdist or a shallow
clone, cannot be checked: `titles` returns None.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SINCE = Path(__file__).with_name("titles_since.txt")
"""The hash of the last commit whose title is not checked."""

LONGEST = 72

FORM = re.compile(r"(?P<area>[\w.+/{},*-]+(?:, [\w.+/{},*-]+)*): (?P<verb>[a-z][a-z-]*) \S")

BASE_FORMS = frozenset((
    "address", "bias", "bless", "bring", "bypass", "canvas", "compress", "discuss", "embed",
    "exceed", "express", "feed", "focus", "guess", "miss", "need", "pass", "ping", "press",
    "proceed", "process", "seed", "shed", "speed", "stress", "string", "suppress",
))  # fmt: skip
"""Verbs that end like an inflected form, but are in base form."""


def faults(title: str) -> Iterator[str]:
    """Yield one message for each rule that a title breaks."""
    if len(title) > LONGEST:
        yield f"the title has {len(title)} characters, expected at most {LONGEST}"
    if ";" in title:
        yield "the title holds ';', expected one idea; try: two commits"
    match = FORM.match(title)
    if match is None:
        yield "the title is not of the form 'area: verb object'"
        return
    verb = match["verb"]
    if verb not in BASE_FORMS and verb.endswith(("ed", "ing", "s")):
        yield f"the verb is {verb!r}, expected its base form, as in 'add' or 'fold'"


def titles(since: str | None = None, root: Path = ROOT) -> list[tuple[str, str]] | None:
    """Return the hash and title of each commit after `since`; None if git lacks that commit."""
    since = since or SINCE.read_text().strip()
    if not (root / ".git").exists():
        return None
    if _git(root, "merge-base", "--is-ancestor", since, "HEAD") is None:
        return None
    log = _git(root, "log", "--no-merges", "--format=%h%x09%s", f"{since}..HEAD") or ""
    return [(name, title) for name, _, title in (line.partition("\t") for line in log.splitlines())]


def _git(root: Path, *args: str) -> str | None:
    """Return the output of a git command, None if it fails or git is missing."""
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *args]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def main(since: str | None = None) -> int:
    commits = titles(since)
    if commits is None:
        print(f"titles: no history since {since or SINCE.read_text().strip()}, nothing is checked")
        return 0
    found = [f"{name} {title}\n  {fault}" for name, title in commits for fault in faults(title)]
    print("\n".join(found) or f"titles: {len(commits)} checked, all follow the form")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
