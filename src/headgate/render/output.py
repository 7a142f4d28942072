"""A rendered configuration: its files and its omissions."""

from collections.abc import Iterable, Mapping

from headgate.model.identities import PrivateText
from headgate.render.omissions import Omission
from headgate.resources.meta import Value


class Rendered(Value, frozen=True, kw_only=True):
    """The files of a proxy by relative path, and what they do not carry over.

    `main` is the file that the proxy starts with. A file with a private key is a PrivateText.
    """

    main: str
    files: Mapping[str, str | PrivateText]
    omissions: tuple[Omission, ...] = ()


def heading(command: str, omissions: Iterable[Omission]) -> list[str]:
    """Return the comment at the top of a configuration: its origin, and one line for each omission."""
    lines = [f"# Written by `headgate render {command}`; the next run replaces changes."]
    listed = [f"#   {one_line(str(omission))}" for omission in omissions]
    return [*lines, *(["# Not carried over:", *listed] if listed else []), ""]


def one_line(text: str) -> str:
    """Return a text for a comment on one line. Names of users may contain line breaks, which would end the comment."""
    return " ".join("".join(map(_printable, text)).split())


def _printable(character: str) -> str:
    return character if character.isprintable() else " "
