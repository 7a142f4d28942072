"""The new requests to some Services, and copies for some, since the last question, by backend: the evidence of rollouts.

No request is in two answers, even if headgate restarts from an old checkpoint between them. Instead, a restart leaves out some
requests (`Delta.may_repeat`).
"""

from collections.abc import Mapping

from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow

_NONE = Counts()


class Increments:
    """Adds up the requests that clients sent to the followed Services. A Service is named `namespace/name`.

    With `copies`, a Service is followed for the copies that mirrors send to it, and not for users' requests.
    """

    def __init__(self) -> None:
        self._followed: dict[tuple[str, bool], dict[str, Counts]] = {}

    def follow(self, service: str, *, copies: bool = False) -> None:
        """Count the requests to a called Service from now on. A Service that is followed already keeps its counts."""
        self._followed.setdefault((service, copies), {})

    def drop(self, service: str, *, copies: bool = False) -> None:
        """Stop to count the requests to a Service, and discard its counts."""
        self._followed.pop((service, copies), None)

    def take(self, service: str, *, copies: bool = False) -> Mapping[str, Counts]:
        """Return the new counts of users' requests, or of copies, by the backend Service that answered.

        Requests without a backend, such as redirects and requests that found no endpoint, are left out.
        """
        found = self._followed.get((service, copies))
        if not found:
            return {}
        self._followed[service, copies] = {}
        return found

    def add(self, flow: Flow, counts: Counts) -> None:
        """Add counts of a flow, unless its Service is not followed."""
        found = self._followed.get((flow.backend if flow.copy else flow.service, flow.copy))
        if found is not None and flow.backend:
            found[flow.backend] = found.get(flow.backend, _NONE).plus(counts)
