"""Compares the sidecar of a pod with the sidecar that the same pod would get if it were created now."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.admission.injection import PodNamespace, Sidecars, decision_message
from headgate.admission.limit_ranges import RESOURCES
from headgate.admission.proxy_users import PROXY_USERS, proxy_user
from headgate.admission.redirection_container import INIT_CONTAINER
from headgate.admission.sidecar_containers import CONTAINER, moved_checks, proxy_volumes
from headgate.admission.sidecar_merge import selecting
from headgate.envoy.proxy_container import PROXY_USER
from headgate.quantity import parse_quantity
from headgate.resources.core.pod_metadata import ADDED, PROCESS, REVISION, sidecar_mode
from headgate.resources.meta import Object, part

_OWN_VARIABLES = "HEADGATE_"
_NOT_COMPARED = frozenset({"runAsUser", "runAsGroup"})
"""The user differs from pod to pod by design; `_user_change` compares it with the range."""
_FIELDS = ("command", "lifecycle", "securityContext", "volumeMounts", "restartPolicy", "startupProbe", "readinessProbe")
"""The compared fields besides image, resources and variables. An admission plugin may set the pull policy of all containers."""
_EMPTY: Mapping[str, Any] = {"volumeMounts": []}
"""What the fields hold that injection does not write."""
_LISTS = ("initContainers", "containers")
_AUTOSCALED = "vpaUpdates"
"""The annotation of pods whose resources a VerticalPodAutoscaler has set."""
_NONE = "none"


def outdated_messages(pod: Object, sidecars: Sidecars, around: PodNamespace) -> tuple[str, ...]:
    """Return how the sidecar of a pod differs from that of a new pod with the same labels; empty if it is up to date.

    `pod` is as an API server stores it: with default values, and with the additions of other webhooks, which are no
    differences. A pod of `headgate run` is never outdated, because no controller creates it again.
    """
    if PROCESS in part(pod["metadata"], "annotations"):
        return ()
    decision, mode = sidecars.decide(pod, around), sidecar_mode(pod)
    if decision.by == "Revision" and mode:
        return tuple(_changes_of_revision(pod, decision.value, sidecars.image_of(decision.value)))
    if decision.injected != bool(mode):
        reason = decision_message(decision, pod["metadata"].get("namespace", ""))
        return (
            (f"has no sidecar, and a new pod gets one: {reason}",)
            if decision.injected
            else (f"has a sidecar, and a new pod gets none: {reason}",)
        )
    return tuple(dict.fromkeys(_changes(pod, sidecars, around))) if mode else ()


def _changes_of_revision(pod: Object, revision: str, image: str) -> Iterator[str]:
    """Yield the other revision, or the other image. Only the revision knows what else its version injects."""
    own = part(pod["metadata"], "annotations").get(REVISION, "")
    if own != revision:
        yield f"revision {own or 'default'}, now {revision}"
    elif image and CONTAINER in (containers := _proxy_containers(pod)):
        before = containers[CONTAINER][1].get("image")
        yield from () if before == image else (f"image {before}, now {image}",)


def _changes(pod: Object, sidecars: Sidecars, around: PodNamespace) -> Iterator[str]:
    plain = _without_proxy(pod)
    before, now = _proxy_containers(pod), _proxy_containers(sidecars.create(plain, around, True))  # noqa: FBT003 - a function of `Sidecars`
    for name in (CONTAINER, INIT_CONTAINER):
        if name in before and name in now:
            yield from _container_changes(
                before[name], now[name], autoscaled=_AUTOSCALED in part(pod["metadata"], "annotations")
            )
        elif name in now:
            yield f"no container {name}"
    if CONTAINER in before:
        yield from _user_change(plain, before[CONTAINER][1])
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        if any(not _contains(volumes.get(volume["name"]), volume) for volume in proxy_volumes()):
            yield "other volumes"
        if checks := ", ".join(moved_checks(pod)):
            yield f"does not serve the probes {checks}"
    yield from _generation_changes(pod, around)


def _without_proxy(pod: Object) -> Object:
    """Return a pod without the containers of injection, which would count as the application's."""
    own = (CONTAINER, INIT_CONTAINER)
    lists = {
        field: [container for container in pod["spec"].get(field) or () if container["name"] not in own]
        for field in _LISTS
    }
    return {**pod, "spec": {**pod["spec"], **lists}}


def _proxy_containers(pod: Object) -> Mapping[str, tuple[str, Object]]:
    """Return the containers of injection by name, each with the field that lists it."""
    return {
        container["name"]: (field, container)
        for field in _LISTS
        for container in pod["spec"].get(field) or ()
        if container["name"] in (CONTAINER, INIT_CONTAINER)
    }


def _container_changes(before: tuple[str, Object], now: tuple[str, Object], *, autoscaled: bool) -> Iterator[str]:
    (place, old), (new_place, new) = before, now
    if old.get("image") != new["image"]:
        yield f"image {old.get('image')}, now {new['image']}"
    if not autoscaled:
        yield from _resource_changes(part(old, "resources"), part(new, "resources"))
    yield from _variable_changes(old, new)
    changed = [field for field in _FIELDS if not _contains(old.get(field), new.get(field, _EMPTY.get(field)))]
    changed += [] if place == new_place else [f"listed in {new_place}"]
    if changed:
        yield f"other settings of the container {new['name']}: {', '.join(changed)}"


def _resource_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, now = _resources(old), _resources(new)
    for resource, kind in sorted(before.keys() | now.keys()):
        was, becomes = (texts.get((resource, kind), _NONE) for texts in (before, now))
        if _NONE in (was, becomes) or parse_quantity(was) != parse_quantity(becomes):
            yield f"{resource} {kind} {was}, now {becomes}"


def _resources(resources: Mapping[str, Any]) -> Mapping[tuple[str, str], str]:
    """Return the quantities by resource and word. Like an API server, use a limit as the request that is missing.

    Other resources than `RESOURCES` do not count: injection writes none, but LimitRanges may have defaults for them.
    """
    limits = part(resources, "limits")
    words = {"limit": limits, "request": {**limits, **part(resources, "requests")}}
    return {
        (resource, word): str(texts[resource])
        for word, texts in words.items()
        for resource in RESOURCES
        if resource in texts
    }


def _variable_changes(old: Object, new: Object) -> Iterator[str]:
    before, now = ({entry["name"]: entry for entry in container.get("env") or ()} for container in (old, new))
    removed = (name for name in before.keys() - now.keys() if name.startswith(_OWN_VARIABLES))
    for name in sorted({*now, *removed} - {PROXY_USER}):
        if name not in now or not _contains(before.get(name), now[name]):
            was, becomes = (part(entries, name).get("value", _NONE) for entries in (before, now))
            yield f"{name} {was}, now {becomes}"


def _user_change(plain: Object, container: Object) -> Iterator[str]:
    user = part(container, "securityContext").get("runAsUser")
    if not any(proxy_user(plain, first) == user for first in PROXY_USERS):
        yield f"user {user}, now one of {PROXY_USERS[0]} to {PROXY_USERS[-1]}"


def _generation_changes(pod: Object, around: PodNamespace) -> Iterator[str]:
    texts = (text.rpartition("@") for text in part(pod["metadata"], "annotations").get(ADDED, "").split(",") if text)
    before = {name: generation for name, _, generation in texts}
    now = {sidecar.metadata.name: str(sidecar.metadata.generation) for sidecar in selecting(pod, around.sidecars)}
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield f"Sidecar {name} of generation {before.get(name, _NONE)}, now {now.get(name, _NONE)}"


def _contains(stored: Any, expected: Any) -> bool:
    """Return whether a stored value has all of an expected one. Lists of named objects may have further objects."""
    if isinstance(expected, Mapping):
        return isinstance(stored, Mapping) and all(
            _contains(stored.get(name), value) for name, value in expected.items() if name not in _NOT_COMPARED
        )
    if isinstance(expected, list) and all(isinstance(entry, Mapping) and "name" in entry for entry in expected):
        return all(any(_contains(entry, needed) for entry in stored or ()) for needed in expected)
    if isinstance(expected, list | tuple):
        return len(stored or ()) == len(expected) and all(map(_contains, stored, expected))
    return bool(stored == expected)
