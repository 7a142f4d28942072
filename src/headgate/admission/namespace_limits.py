"""Fits the resources of a sidecar to the LimitRanges and ResourceQuotas of its namespace, which could refuse its pod."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headgate.admission.limit_ranges import Quantities, fit_warnings, fitted
from headgate.admission.proxy_settings import ProxySettings
from headgate.admission.resource_quotas import (
    applying,
    completed,
    completion_warnings,
    excess_warnings,
    pod_range_warnings,
    states_resources,
)
from headgate.resources.meta import Object


class NamespaceLimits(NamedTuple):
    """The LimitRanges and the ResourceQuotas of a namespace."""

    ranges: Sequence[Object] = ()
    quotas: Sequence[Object] = ()

    def fitted(self, settings: ProxySettings, pod: Object) -> ProxySettings:
        """Return the settings of a pod's proxy with the resources that the namespace accepts."""
        completed_resources = self._completed(settings, pod)
        return settings._replace(resources=fitted(completed_resources, self.ranges))

    def warnings(self, settings: ProxySettings, injected: Object) -> Iterator[str]:
        """Yield the warnings about the proxy of a pod with `settings`, and about a quota or LimitRange that has no room for the pod.

        `injected` is the pod with its sidecar.
        """
        yield from fit_warnings(settings.resources, self.ranges)
        quotas = applying(self.quotas, injected)
        ranged = fitted(settings.resources, self.ranges)
        yield from completion_warnings(ranged, self._completed(settings, injected), quotas)
        yield from excess_warnings(injected, quotas)
        yield from pod_range_warnings(injected, self.ranges)

    def _completed(self, settings: ProxySettings, pod: Object) -> Quantities:
        """Return the resources with the defaults of the LimitRanges, and then with what quotas still demand."""
        ranged = fitted(settings.resources, self.ranges)
        if states_resources(pod):
            return ranged
        first = completed(ranged, applying(self.quotas, pod, ranged), settings.concurrency)
        # With a value from one quota, the pod may be in the scope of another.
        return completed(first, applying(self.quotas, pod, first), settings.concurrency)


LimitsByNamespace = Callable[[str], NamespaceLimits]
"""A function that returns the limits of a namespace."""


def no_limits(_namespace: str) -> NamespaceLimits:
    """Return no limits."""
    return NamespaceLimits()
