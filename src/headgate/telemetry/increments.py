"""The new requests to some Services since the last question, by backend: the evidence of rollouts.

No request is in two answers, even if headgate restarts from an old checkpoint between them. Instead, a restart leaves out some
requests (`Delta.may_repeat`).
"""

from collections.abc import Mapping

from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow

_NONE = Counts()


class Increments:
    """Adds up the requests that clients sent to the followed Services. A Service is named `namespace/name`."""

    def __init__(self) -> None:
        self._followed: dict[str, dict[str, Counts]] = {}

    def follow(self, service: str) -> None:
        """Count the requests to a called Service from now on. A Service that is followed already keeps its counts."""
        self._followed.setdefault(service, {})

    def drop(self, service: str) -> None:
        """Stop to count the requests to a Service, and discard its counts."""
        self._followed.pop(service, None)

    def take(self, service: str) -> Mapping[str, Counts]:
        """Return the new counts of users' requests, by the backend Service that answered.

        Requests without a backend, such as redirects and requests that found no endpoint, are left out.
        """
        found = self._followed.get(service)
        if not found:
            return {}
        self._followed[service] = {}
        return found

    def add(self, flow: Flow, counts: Counts) -> None:
        """Add counts of a flow, unless they are of mirrored copies or no followed Service."""
        found = self._followed.get(flow.service)
        if found is not None and flow.backend and not flow.copy:
            found[flow.backend] = found.get(flow.backend, _NONE).plus(counts)
