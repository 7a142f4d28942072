"""What goes wrong between a user, the plugin and the API; each message says what to do."""

from headgate.errors import HeadgateError


class WrongUsage(HeadgateError):
    """What the user typed can't be meant: a kind, a column or a duration that is none."""


class NoMetrics(HeadgateError):
    """The cluster has no metrics API, or none that knows the kind."""


class Forbidden(HeadgateError):
    """The user may not read this."""


class NotDrawable(HeadgateError):
    """A graph can't be brought onto the cells of a terminal."""
