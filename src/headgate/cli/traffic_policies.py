"""Derives XAuthorizationPolicies that allow the same recorded calls as derived TrafficTargets.

A policy selects pods by labels, not by their ServiceAccount. So the labels of an account's running pods must distinguish them from
all other pods of the namespace.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.compiler.traffic_rules import CalledPort, GeneratedRule, Rules
from headgate.resources.audit_mode import AUDIT, MODE
from headgate.resources.gateway_api.authorization_policy import SERVICE_ACCOUNT
from headgate.resources.meta import Object, labels_of, part
from headgate.resources.registry import AUTHORIZATION_POLICY

MOST_SOURCES = 256  # the limit of the schema
_PREFERRED = ("app.kubernetes.io/name", "app", "k8s-app")
_CHANGING = {"pod-template-hash", "controller-revision-hash", "controller-uid", "job-name", "pod-template-generation"}
"""Labels that controllers add: new pods of a workload have other values."""
_LATER = {"version", "app.kubernetes.io/version"}
"""Labels that are used only if no other one distinguishes the pods: the next version has another value."""


class PodLabels(NamedTuple):
    """The ServiceAccount (`namespace/name`) and the labels of a pod."""

    account: str
    labels: Mapping[str, str]


def pod_labels(pods: Iterable[Object]) -> Iterator[PodLabels]:
    """Yield the labels of pods that users wrote; those of controllers, and of pods that have ended, are left out."""
    for pod in pods:
        if part(pod, "status").get("phase") not in {"Succeeded", "Failed"}:
            account = part(pod, "spec").get("serviceAccountName") or "default"
            stable = {key: value for key, value in labels_of(pod).items() if _is_stable(key)}
            yield PodLabels(f"{pod['metadata']['namespace']}/{account}", stable)


def _is_stable(key: str) -> bool:
    return key not in _CHANGING and not key.startswith(
        ("batch.kubernetes.io/", "statefulset.kubernetes.io/", "apps.kubernetes.io/")
    )


def policies(rules: Rules, pods: Iterable[PodLabels]) -> Rules:
    """Return a policy for each account with TrafficTargets. An account without a selector for its pods is in `unselected`."""
    by_namespace: dict[str, list[PodLabels]] = defaultdict(list)
    for pod in pods:
        by_namespace[pod.account.partition("/")[0]].append(pod)
    by_account: dict[tuple[str, str], list[GeneratedRule]] = defaultdict(list)
    for target in rules.targets:
        by_account[target.destination.namespace, target.destination.account].append(target)
    written: list[GeneratedRule] = []
    unselected: dict[str, str] = {}
    for (namespace, account), targets in by_account.items():
        own = f"{namespace}/{account}"
        labels = [pod.labels for pod in by_namespace[namespace] if pod.account == own]
        selector = pod_selector(labels, [pod.labels for pod in by_namespace[namespace] if pod.account != own])
        if selector is None:
            unselected[own] = (
                "its pods have no label that no other pod of the namespace has"
                if labels
                else "it has no running pod, so its labels are unknown"
            )
        else:
            written.append(_policy(CalledPort(namespace, account), targets, selector))
    namespaces = sorted({target.destination.namespace for target in written})
    return Rules(written, dict.fromkeys(namespaces, ()), rules.left_out, unselected)


def pod_selector(own: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> Object | None:
    """Return the selector of some pods that selects none of the other pods; None if there is none.

    It has one label where one suffices, so that it selects later pods of the workloads too.
    """
    shared = set.intersection(*(set(labels) for labels in own)) if own else set()
    for key in sorted(shared, key=lambda name: (name in _LATER, name not in _PREFERRED, name)):
        values = sorted({labels[key] for labels in own})
        if not any(labels.get(key) in values for labels in others):
            if len(values) == 1:
                return {"matchLabels": {key: values[0]}}
            return {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
    common = {key: own[0][key] for key in sorted(shared) if len({labels[key] for labels in own}) == 1}
    if common and not any(common.items() <= labels.items() for labels in others):
        return {"matchLabels": common}
    return None


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
    audited = (
        {"annotations": {MODE: AUDIT}} if any("annotations" in each.manifest["metadata"] for each in targets) else {}
    )
    manifest = {
        "apiVersion": AUTHORIZATION_POLICY.hub,
        "kind": AUTHORIZATION_POLICY.kind,
        "metadata": {"name": where.account, "namespace": where.namespace, **audited},
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
