"""What can be wrong with what the user gave us.

Every mistake of the user raises one of these classes.  Each message says what is wrong, where
(file, node), what was found, what was expected and, where there is something, what to try.
Mistakes of our own are `AssertionError`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpenglow.base.words import escaped, told


class AlpenglowError(Exception):
    """The base of all errors that a user can cause.

    An outer layer may add the place (`located`), so a type rule states only the mistake.

    Args:
        message: the mistake, with the found and the expected value.
        file: the path of the model; "" if unknown.
        node: the name of the node; "" if unknown.
        hint: what to try.
        flags: what to try on the command line; "": `hint`.
    """

    def __init__(
        self, message: str, *, file: str = "", node: str = "", hint: str = "", flags: str = ""
    ) -> None:
        super().__init__(message)
        # What is in a file goes into messages: see `told`.
        self.message = told(message)
        self.file = file
        self.node = node
        self.hint = told(hint)
        self.flags = told(flags)

    def located(self, *, file: str = "", node: str = "") -> AlpenglowError:
        """Return self, with the places filled in that were not known before."""
        self.file = self.file or file
        self.node = self.node or node
        return self

    def __str__(self) -> str:
        return self._text(self.hint)

    def for_command_line(self) -> str:
        """Return the text with the hint for who types commands."""
        return self._text(self.flags or self.hint)

    def _text(self, hint: str) -> str:
        node, file = ([f"node {told(self.node)}"] if self.node else []), escaped(self.file)
        where = ", ".join([*node, *([file] if file else [])])
        text = self.message + (f"   ({where})" if where else "")
        return text + (f"\n  try: {hint}" if hint else "")


class ModelError(AlpenglowError):
    """The model file is damaged or breaks the rules of its format."""


class TypeRuleError(AlpenglowError):
    """An operator was applied to types that its rule does not allow."""


class UnsupportedError(AlpenglowError):
    """The model is well formed, but asks for something that is not there (yet).

    If several operators of a model cannot be imported, `refusals` lists all of them.
    """

    refusals: Sequence[Refusal] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """An operator that cannot be imported, its place in the file, and the error that says why."""

    kind: str
    place: str
    error: UnsupportedError

    @property
    def reason(self) -> str:
        """The reason without the name of the operator."""
        return self.error.message.removeprefix(f"{self.kind}: ")


class FeedError(AlpenglowError):
    """A call got an array of the wrong name, shape or element type, or data out of range.

    Data that are computed from an array, such as an index, count as well.  Other calls may succeed:
    in a server this is an error of the client.
    """


class ParseError(AlpenglowError):
    """Text of a graph, program or kernel does not follow the grammar."""


class GraphError(AlpenglowError):
    """A graph reads what it does not hold, or breaks another rule of graphs."""


class KernelError(AlpenglowError):
    """A kernel reads what it has not set, or breaks another rule of kernels."""


class ProgramError(AlpenglowError):
    """A program reaches outside of its memory, or breaks another rule of programs."""


class OptionError(AlpenglowError):
    """An option, target or knob has a value that it cannot have."""


class UnknownNetworkError(OptionError):
    """A host has no network of a name, or of a version; another name may be right."""


class ClosedError(UnsupportedError):
    """A host is closed and takes no more requests."""


class IncompatibleError(AlpenglowError):
    """An artifact was made for another machine, format version or LLVM version."""


class SignatureError(AlpenglowError):
    """An archive is not signed by the key that was demanded."""


class CancelledError(AlpenglowError):
    """A call was ended by `Executable.cancel`."""


class TimeLimitError(AlpenglowError):
    """A call took longer than its `timeout`, or a request was not done by its deadline."""


class CompileTimeoutError(AlpenglowError):
    """A compilation took longer than the `timeout` of its `Options`."""


class BusyError(AlpenglowError):
    """As many requests wait as may; later on there may be room for another."""


class MemoryLimitError(AlpenglowError):
    """A model needs more memory than it was allowed: at least `least` bytes."""

    least: int = 0


class DeviceError(AlpenglowError):
    """A device is not there, has not enough memory, refuses code, or was lost in mid-run."""


class SessionError(AlpenglowError):
    """A session is in use, has lost its variables, or cannot continue from their values.

    A session loses its variables if a call that computed them in place was ended.
    """


NONSENSE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""What Python raises in converters and type rules where attributes or operands of somebody else's
make no sense.  No AssertionError: an assertion that a file can break is a check that is missing."""


class TrainingError(AlpenglowError):
    """A step of training came to a loss or a gradient that is infinite or NaN."""
