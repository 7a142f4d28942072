"""Texts that must not be seen by accident."""


class PrivateText(str):
    """A secret: printed, logged and encoded as `[redacted]`; `reveal` gives the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[redacted]"

    __str__ = __repr__

    def reveal(self) -> str:
        """Return the secret itself."""
        return str.__str__(self)
