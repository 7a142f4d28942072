"""Find the pods that the author of an access policy probably meant, when the policy selects none.

The usual mistakes are one wrong letter in a name, and the name of a Service for pods that run as another ServiceAccount.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

from headgate.compiler.snapshot import Snapshot, account_of
from headgate.resources.gateway_api.authorization_policy import AuthorizationPolicy
from headgate.resources.meta import Key
from headgate.resources.selectors import LabelSelector
from headgate.resources.smi.traffic_target import TrafficTarget

LEAST_LETTERS = 4


class SimilarPods:
    """Pods of a snapshot with a name that is similar to one that no pod has."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def of(self, key: Key) -> str:
        """Return in words which pods an access policy without pods may mean; empty if none is similar."""
        policy = self._snapshot.objects.get(key)
        if isinstance(policy, TrafficTarget):
            return self._of_account(f"{key.namespace}/{policy.spec.destination.name}")
        if isinstance(policy, AuthorizationPolicy):
            return self._of_selectors(key.namespace, [target.selector for target in policy.spec.target_refs])
        return ""

    def _of_account(self, account: str) -> str:
        if account in self._snapshot.services:
            selected = self._snapshot.services[account][1].spec.selected
            pods = self._snapshot.selected(account.partition("/")[0], selected) if selected else ()
            if pods:
                used = sorted({account_of(pod, self._snapshot.pods[pod]) for pod in pods})
                return f"the pods of Service {account} run as ServiceAccount {', '.join(used)}"
        names = near(account, self._accounts)
        return f"there are pods of ServiceAccount {', '.join(names)}" if names else ""

    def _of_selectors(self, namespace: str, selectors: Iterable[LabelSelector]) -> str:
        for selector in selectors:
            for label, value in sorted(selector.match_labels.items()):
                variants = self._values.get((namespace, label), {})
                if value not in variants.get(value, ()) and (names := near(value, variants)):
                    return f"there are pods with {', '.join(f'{label}={name}' for name in names)}"
        return ""

    @cached_property
    def _accounts(self) -> Mapping[str, Collection[str]]:
        return _variants_of(self._snapshot.pods_of_account)

    @cached_property
    def _values(self) -> Mapping[tuple[str, str], Mapping[str, Collection[str]]]:
        values: dict[tuple[str, str], set[str]] = defaultdict(set)
        for namespace, label, value in self._snapshot.pods_with_label:
            values[namespace, label].add(value)
        return {label: _variants_of(texts) for label, texts in values.items()}


def near(name: str, variants: Mapping[str, Collection[str]]) -> list[str]:
    """Return the names that differ from a name by one letter, or by two exchanged neighbors. `variants` has those of each name.

    Names that differ only in digits are of different versions, which are no mistake. Short names are similar by chance.
    """
    if len(name.rpartition("/")[2]) < LEAST_LETTERS:
        return []
    letters = re.sub(r"\d", "", name)
    similar = {other for variant in _variants(name) for other in variants.get(variant, ())}
    return sorted(other for other in similar if re.sub(r"\d", "", other) != letters and _is_mistyped(name, other))


def _is_mistyped(name: str, other: str) -> bool:
    """Return whether names that share a variant differ by one mistake: each may lack another letter."""
    if len(name) != len(other):
        return True
    places = [index for index, pair in enumerate(zip(name, other, strict=True)) if pair[0] != pair[1]]
    first, last = places[0], places[-1]
    return first == last or (last == first + 1 and name[first : last + 1] == other[last] + other[first])


def _variants_of(names: Iterable[str]) -> Mapping[str, Collection[str]]:
    """Return names by their variants, so that similar names are found without a comparison with each name."""
    by_variant: dict[str, set[str]] = defaultdict(set)
    for name in names:
        for variant in _variants(name):
            by_variant[variant].add(name)
    return by_variant


def _variants(name: str) -> Iterator[str]:
    """Yield a name, and the name without each of its letters; the namespace of `namespace/name` stays."""
    yield name
    yield from (name[:index] + name[index + 1 :] for index in range(name.find("/") + 1, len(name)))
