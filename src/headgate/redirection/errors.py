"""What goes wrong while rules are read or changed."""

from headgate.errors import HeadgateError


class RedirectionError(HeadgateError):
    """The rules can't be read or changed; the message says why, and what to do."""
