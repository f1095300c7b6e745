"""How the programs of goldens become graphs, for each front end that has goldens.

    python -m tests.frontends.programs torch window "aten.max_pool1d"

prints the texts of the graphs of those programs of a golden in which some words stand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from tests.frontends import goldens
from tests.frontends.digests import text_of
from tests.frontends.stablehlo.recorded import graph_of_text, texts
from tests.frontends.tflite.probed import graph_of_line
from tests.frontends.torch.calls import graph_of_call, read_call

from alpenglow.ir.graph import Graph

GRAPHS: Mapping[str, Callable[[str, str], Graph]] = {
    "torch": lambda name, program: graph_of_call(read_call(program)),
    "stablehlo": lambda name, program: graph_of_text(texts(name)[program]),
    "tflite": lambda name, program: graph_of_line(program),
}
"""Functions of the name of a golden and a program in it."""


def main(front_end: str, name: str, words: str = "") -> int:
    for program, _ in goldens.read(front_end, name):
        if words in program:
            print(program, text_of(GRAPHS[front_end](name, program)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
