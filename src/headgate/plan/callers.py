"""Choose an example caller for an access change."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from headgate.model.access import source_includes
from headgate.model.identities import is_gateway, parse_id
from headgate.model.routing import Mesh
from headgate.plan.access import PLAINTEXT


class Accounts:
    """The identities of a mesh's workloads."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    def example(self, sources: Sequence[str], excepted: Sequence[str], destination: str) -> str:
        """Return a caller among the sources: one that a rule names, or else a workload's identity; empty if there is none.

        It is none of `excepted`, nor the called `destination`. A workload of the namespace of the destination is preferred.
        """
        named = (source for source in sources if _is_account(source))
        return next(named, "") or next(self._included(sources, excepted, destination), "")

    def _included(self, sources: Sequence[str], excepted: Sequence[str], destination: str) -> Iterator[str]:
        patterns = [source for source in sources if source.endswith("*")]
        called = parse_id(destination)
        near = self._identities.get(called.namespace, {}) if called and patterns else {}
        every = self._identities.values() if patterns else ()
        for identity in (*near, *(identity for identities in every for identity in identities)):
            others = any(source_includes(other, identity) for other in excepted)
            if identity != destination and not others and any(source_includes(each, identity) for each in patterns):
                yield identity

    @cached_property
    def _identities(self) -> Mapping[str, Mapping[str, None]]:
        """The distinct identities by namespace, in the order of the workloads."""
        identities: dict[str, dict[str, None]] = {}
        for identity in dict.fromkeys(workload.identity for workload in self._mesh.workloads):
            if account := parse_id(identity):
                identities.setdefault(account.namespace, {})[identity] = None
        return identities


def _is_account(source: str) -> bool:
    account = parse_id(source)
    return source != PLAINTEXT and account is not None and not is_gateway(account.namespace, account.name)
