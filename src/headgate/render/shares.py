"""The shares of a route, grouped by what a proxy does with their requests."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from headgate.model.evaluate import UNAVAILABLE
from headgate.model.requests import Filters
from headgate.model.routing import Endpoint, PortRef, Protocol, Redirected, Split, Target
from headgate.resources.meta import Value


class BackendGroup(Value, frozen=True, kw_only=True):
    """Backends with ready endpoints, whose requests get the same filters and go to the backend with one protocol."""

    filters: Filters
    protocol: Protocol
    targets: tuple[Target, ...]

    @property
    def weight(self) -> int:
        """Return the sum of the weights."""
        return sum(target.weight for target in self.targets)


class Shares(Value, frozen=True, kw_only=True):
    """The groups of a split, its redirects, and the weights of the requests that get an error, by status."""

    groups: tuple[BackendGroup, ...]
    failing: Mapping[int, int]
    redirected: tuple[Redirected, ...] = ()


def grouped(
    split: Split, endpoints: Mapping[PortRef, Sequence[Endpoint]], protocols: Mapping[PortRef, Protocol]
) -> Shares:
    """Return the shares of a split. A split without any share fails with 503."""
    groups: dict[tuple[Filters, Protocol], list[Target]] = {}
    failing: dict[int, int] = {}
    for target in split.targets:
        if endpoints.get(target.ref):
            groups.setdefault((target.filters, protocol_of(target, protocols)), []).append(target)
        else:
            failing[UNAVAILABLE] = failing.get(UNAVAILABLE, 0) + target.weight
    for share in split.broken:
        failing[share.status] = failing.get(share.status, 0) + share.weight
    backend_groups = tuple(
        BackendGroup(filters=key[0], protocol=key[1], targets=tuple(items)) for key, items in groups.items()
    )
    is_empty = not (backend_groups or failing or split.redirected)
    return Shares(groups=backend_groups, failing={UNAVAILABLE: 1} if is_empty else failing, redirected=split.redirected)


def protocol_of(target: Target, protocols: Mapping[PortRef, Protocol]) -> Protocol:
    """Return the protocol with which a proxy calls a backend."""
    return target.protocol or protocols.get(target.ref, Protocol.HTTP)


def parts(weights: Sequence[int], whole: int) -> tuple[Sequence[int], bool]:
    """Divide `whole` by weights into integers; return them, and whether they have exactly these ratios."""
    total = sum(weights)
    exact = [Fraction(weight * whole, total) for weight in weights]
    rounded = [int(share) for share in exact]
    by_loss = sorted(range(len(weights)), key=lambda index: rounded[index] - exact[index])
    for index in by_loss[: whole - sum(rounded)]:
        rounded[index] += 1
    return rounded, rounded == exact
