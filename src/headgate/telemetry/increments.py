"""The new requests to some Services, and copies by some splits, since the last question, by backend: the evidence of rollouts.

No request is in two answers, even if headgate restarts from an old checkpoint between them. Instead, a restart leaves out
some requests (`Delta.may_repeat`).
"""

from collections.abc import Mapping

from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow

_NONE = Counts()


class Increments:
    """Adds up the requests that clients sent to the followed Services. A Service is named `namespace/name`.

    The requests to a Service are those that name it, and those that a route of a Gateway or of another Service passes to the
    split of the Service. With `copies`, the name is that of a split, whose copies are counted instead.
    """

    def __init__(self) -> None:
        self._followed: dict[tuple[str, bool], dict[str, Counts]] = {}

    def follow(self, name: str, *, copies: bool = False) -> None:
        """Count the requests to a Service from now on. A Service that is followed already keeps its counts."""
        self._followed.setdefault((name, copies), {})

    def drop(self, name: str, *, copies: bool = False) -> None:
        """Stop to count the requests to a Service, and discard its counts."""
        self._followed.pop((name, copies), None)

    def take(self, name: str, *, copies: bool = False) -> Mapping[str, Counts]:
        """Return the new counts of users' requests, or of copies, by the backend Service that was tried last.

        They include the attempts at each backend in which no program answered. Requests without a backend, such as
        redirects and requests that found no endpoint, are left out.
        """
        by_backend = self._followed.get((name, copies))
        if not by_backend:
            return {}
        self._followed[name, copies] = {}
        return by_backend

    def add(self, flow: Flow, counts: Counts, through: str = "") -> None:
        """Add counts of a flow, unless its Service is not followed. `through` is that of `series.Counted`."""
        if not self._followed or not flow.backend:
            return
        for name in {through} if flow.copy else {flow.service, through}:
            by_backend = self._followed.get((name, flow.copy))
            if by_backend is not None:
                by_backend[flow.backend] = by_backend.get(flow.backend, _NONE).plus(counts)
