"""The errors of the plugin. Each message names the next step."""

from headgate.errors import HeadgateError


class NoMetrics(HeadgateError):
    """The cluster has no metrics API, or the API does not have the kind."""


class Forbidden(HeadgateError):
    """The user has no right to read the resource."""


class NotDrawable(HeadgateError):
    """The edges of a graph contradict each other on a grid, so it can't be drawn in a terminal."""
