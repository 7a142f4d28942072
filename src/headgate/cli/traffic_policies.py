"""Derives XAuthorizationPolicies that allow the same recorded calls as derived TrafficTargets.

A policy selects pods by labels, not by their ServiceAccount. So the labels of an account's running pods must distinguish them from
all other pods of the namespace.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.compiler.traffic_rules import CalledPort, GeneratedRule, Rules
from headgate.resources.gateway_api.authorization_policy import SERVICE_ACCOUNT
from headgate.resources.meta import Object, labels_of, part
from headgate.resources.pod_owners import is_controller_label
from headgate.resources.registry import AUTHORIZATION_POLICY

MOST_SOURCES = 256  # the limit of the schema
_PREFERRED = ("app.kubernetes.io/name", "app", "k8s-app")
_OF_VERSION = {"version", "chart", "revision", "canonical-revision"}
"""Names of labels, with any prefix, that are used only if no other ones distinguish the pods: the next version has another value."""


class PodLabels(NamedTuple):
    """The ServiceAccount (`namespace/name`) and the labels of a pod."""

    account: str
    labels: Mapping[str, str]


def pod_labels(pods: Iterable[Object]) -> Iterator[PodLabels]:
    """Yield the labels of pods that users wrote; those of controllers, and of pods that have ended, are left out."""
    for pod in pods:
        if part(pod, "status").get("phase") not in {"Succeeded", "Failed"}:
            account = part(pod, "spec").get("serviceAccountName") or "default"
            stable = {key: value for key, value in labels_of(pod).items() if not is_controller_label(key)}
            yield PodLabels(f"{pod['metadata']['namespace']}/{account}", stable)


def policies(rules: Rules, pods: Iterable[PodLabels]) -> Rules:
    """Return a policy for each account with TrafficTargets.

    An account without a selector for its pods is in `unselected`, one with a selector for their version in `of_version`.
    """
    by_namespace: dict[str, list[PodLabels]] = defaultdict(list)
    for pod in pods:
        by_namespace[pod.account.partition("/")[0]].append(pod)
    by_account: dict[tuple[str, str], list[GeneratedRule]] = defaultdict(list)
    for target in rules.targets:
        by_account[target.destination.namespace, target.destination.account].append(target)
    written: list[GeneratedRule] = []
    unselected: dict[str, str] = {}
    of_version: dict[str, Sequence[str]] = {}
    for (namespace, account), targets in by_account.items():
        own = f"{namespace}/{account}"
        labels = [pod.labels for pod in by_namespace[namespace] if pod.account == own]
        selector = pod_selector(labels, [pod.labels for pod in by_namespace[namespace] if pod.account != own])
        if selector is None:
            unselected[own] = (
                "no labels that outlast a rollout distinguish its pods from the other pods of the namespace"
                if labels
                else "it has no running pod, so its labels are unknown"
            )
        else:
            written.append(_policy(CalledPort(namespace, account), targets, selector))
            if of_next := [key for key in _labels(selector) if _is_of_version(key)]:
                of_version[own] = of_next
    namespaces = sorted({target.destination.namespace for target in written})
    return Rules(written, dict.fromkeys(namespaces, ()), rules.left_out, unselected, of_version)


def pod_selector(own: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> Object | None:
    """Return the selector of some pods that selects none of the other pods; None if there is none.

    It has one label where one suffices, so that it selects later pods of the workloads too. It has labels of a version only if
    all other labels together do not suffice.
    """
    shared = set.intersection(*(set(labels) for labels in own)) if own else set()
    values = {key: sorted({labels[key] for labels in own}) for key in shared}
    sorted_keys = sorted(shared, key=lambda key: (_is_of_version(key), key not in _PREFERRED, key))
    stable = [key for key in sorted_keys if not _is_of_version(key)]
    for keys in (stable, sorted_keys):
        if chosen := _distinguishing(keys, values, others):
            return _selector({key: values[key] for key in chosen})
    return None


def _is_of_version(key: str) -> bool:
    return key.rpartition("/")[2] in _OF_VERSION


def _distinguishing(
    keys: Sequence[str], values: Mapping[str, Sequence[str]], others: Sequence[Mapping[str, str]]
) -> Sequence[str]:
    """Return a minimal selection of labels whose values no other pod has together; the first keys are preferred."""

    def distinguish(chosen: Sequence[str]) -> bool:
        return bool(chosen) and not any(all(labels.get(key) in values[key] for key in chosen) for labels in others)

    if single := next((key for key in keys if distinguish([key])), None):
        return [single]
    if not distinguish(keys):
        return []
    chosen = list(keys)
    for key in reversed(keys):
        rest = [other_key for other_key in chosen if other_key != key]
        if distinguish(rest):
            chosen = rest
    return chosen


def _selector(values: Mapping[str, Sequence[str]]) -> Object:
    exact = {key: each[0] for key, each in values.items() if len(each) == 1}
    several = [{"key": key, "operator": "In", "values": each} for key, each in values.items() if len(each) > 1]
    return ({"matchLabels": exact} if exact else {}) | ({"matchExpressions": several} if several else {})


def _labels(selector: Object) -> Iterator[str]:
    """Yield the labels of a selector from `pod_selector`."""
    yield from selector.get("matchLabels", ())
    yield from (expression["key"] for expression in selector.get("matchExpressions", ()))


def _policy(where: CalledPort, targets: Sequence[GeneratedRule], selector: Object) -> GeneratedRule:
    """Return the policy of an account: a rule for each group of ports with the same callers."""
    ports: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for target in targets:
        if callers := tuple(sorted({record.caller for record in target.allowed})):
            ports[callers].add(target.destination.port)
    rules = [
        {
            "sources": [_source(caller) for caller in callers[start : start + MOST_SOURCES]],
            "networkAttributes": {"ports": sorted(numbers)},
        }
        for callers, numbers in sorted(ports.items(), key=lambda entry: sorted(entry[1]))
        for start in range(0, len(callers), MOST_SOURCES)
    ]
    annotations = targets[0].manifest["metadata"]["annotations"]  # the mode, which all have
    manifest = {
        "apiVersion": AUTHORIZATION_POLICY.hub,
        "kind": AUTHORIZATION_POLICY.kind,
        "metadata": {"name": where.account, "namespace": where.namespace, "annotations": annotations},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Pod", "selector": selector}],
            "action": "ALLOW",
            "rules": rules,
        },
    }
    allowed = [record for target in targets for record in target.allowed]
    return GeneratedRule(where, allowed, [record for target in targets for record in target.refused], manifest)


def _source(caller: str) -> Object:
    namespace, name = caller.split("/", 1)
    return {"type": SERVICE_ACCOUNT, "serviceAccount": {"namespace": namespace, "name": name}}
