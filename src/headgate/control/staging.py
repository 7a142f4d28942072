"""How workloads change between plaintext and mutual TLS without losing a request (R74, R77).

A caller must not send what the server does not take yet, and a server must not stop taking what a caller still sends. So
a change goes through the stages in between, and each waits until every proxy is known to hold the one before.
"""

from collections.abc import Iterable, Mapping

from headgate.envoy.config import CLUSTER
from headgate.model.workloads import Stage, Workload
from headgate.xds.fleet import Fleet, Proxy

INBOUND = "inbound"


class Staging:
    """Which stage each workload is in. A workload that was not there before begins where it is wanted."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stages: dict[str, Stage] = {}
        self._targets: dict[str, Stage] = {}

    @property
    def is_due(self) -> bool:
        """Say whether some workload may take its next step."""
        return self._stages != self._targets and not self.waiting()

    def waiting(self) -> tuple[str, ...]:
        """Return the proxies that are not known to hold what decides about TLS: they lag, refused it, or are away."""
        return tuple(sorted(proxy.id for proxy in self._fleet.serving() if not _holds(proxy)))

    def note(self, workloads: Iterable[Workload]) -> None:
        """Take note of what proxies are given now, and of what is wanted; workloads that are gone are forgotten."""
        self._targets = {item.name: item.target for item in workloads}
        self._stages = {item.name: item.stage for item in workloads}

    def next(self) -> Mapping[str, Stage]:
        """Return the stages for the next build: a step further where one is due. `note` what came of it."""
        if self.is_due:
            return {name: stage.towards(self._targets[name]) for name, stage in self._stages.items()}
        return dict(self._stages)


def _holds(proxy: Proxy) -> bool:
    """Say whether a proxy calls, and is called, as its configuration says; a refused address is no part of that."""
    refused = any(item.type_url == CLUSTER or item.name.startswith(INBOUND) for item in proxy.refusals())
    return proxy.settled() and not refused
