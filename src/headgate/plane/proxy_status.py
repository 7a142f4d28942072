"""The status of a proxy in the inspect API: what it acknowledged, rejected, or has not answered."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from msgspec import structs

from headgate.envoy.config import (
    CHAIN,
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    NO_RESOURCES,
    ROUTES,
    RUNTIME,
    SCOPES,
    SECRET,
    Encoded,
    Resources,
    TypeUrl,
)
from headgate.plane.status.findings import PROXY, Origin
from headgate.resources import inspect
from headgate.resources.core.pod import MeshPod
from headgate.resources.inspect import ProxyStatus, Refusal, ResourceType, Time
from headgate.resources.meta import Key, epoch_seconds, timestamp
from headgate.xds import fleet
from headgate.xds.subscription import Rejection, Subscription

TYPES: Mapping[inspect.TypeName, TypeUrl] = dict(
    zip(inspect.TYPES, (CLUSTER, ENDPOINTS, LISTENER, CHAIN, ROUTES, SCOPES, SECRET, RUNTIME), strict=True)
)
_NAMES = {type_url: name for name, type_url in TYPES.items()}
_VERSION_BYTES = 6
REPORT_SECONDS = 30.0  # the longest time until a kubelet that acts reports that a pod has ended, after its grace period


def proxy_status(proxy: fleet.FleetProxy, pod: MeshPod | None, origin: Origin, now: float) -> ProxyStatus:
    """Return the status of a proxy: its state, resources, refusals and times. `now` is in seconds since the epoch.

    `pod` is the pod of a sidecar. While it is being deleted, its proxy may end at any time (`presumed_ended_until`).
    """
    timestamps = proxy.timestamps
    current = tuple(proxy.rejections())
    refusals = tuple(_refusal(proxy, rejected, origin) for rejected in current)
    ends = now < presumed_ended_until(proxy, pod)
    state, message = _state(proxy, refusals, now)
    if ends:
        message = "its pod is being deleted"
    last = timestamps.rejected[0] if timestamps.rejected else None
    waiting = min(timestamps.sent.values(), default=0.0) if proxy.session else 0.0
    return ProxyStatus(
        state=state,
        message=message,
        serves=proxy.was_configured and not ends,
        connection_time=timestamp(timestamps.connected) if proxy.session else None,
        last_acknowledged_time=_time(max(timestamps.acknowledged.values(), default=0.0)),
        waiting_since_time=_time(waiting),
        types=tuple(_type(proxy, name, type_url) for name, type_url in TYPES.items()) if proxy.session else (),
        refusals=refusals,
        last_refusal=structs.replace(_refusal(proxy, last, origin), current=last in current) if last else None,
    )


def presumed_ended_until(proxy: fleet.FleetProxy, pod: MeshPod | None) -> float:
    """Return until when (seconds since the epoch) a proxy without a stream is presumed to have ended; 0 for others.

    The pod of such a proxy is being deleted, and its kubelet reports the end seconds later. A pod that exists long after its
    deletionTimestamp, which includes the grace period, has a kubelet that does not act: the proxy may still serve.
    """
    if proxy.session or pod is None or not pod.metadata.deletion_timestamp:
        return 0.0
    return epoch_seconds(pod.metadata.deletion_timestamp) + REPORT_SECONDS


def _state(proxy: fleet.FleetProxy, refusals: Sequence[Refusal], now: float) -> tuple[inspect.ProxyState, str]:
    """Return the state of a proxy, and the reason if it is not in sync."""
    state, message = proxy_state(proxy), ""
    if state == "Disconnected":
        message = (
            "the proxy has no xDS stream, and keeps its last configuration"
            if proxy.was_configured
            else "the proxy has not connected yet"
        )
    elif state == "Refused":
        message = f"{refusals[0].resource}: {refusals[0].message}"
    elif state == "Lagging" and proxy.is_behind:
        message = "its revision has not rendered the newest configuration"
    elif state == "Lagging" and proxy.config.get() is None:
        message = "the proxy has no certificate yet; without a certificate, headgate sends no configuration"
    elif state == "Lagging":
        waiting = min(proxy.timestamps.sent.values(), default=now)
        message = f"the proxy has not answered for {max(now - waiting, 0):.0f} s"
    return state, message


def proxy_state(proxy: fleet.FleetProxy) -> inspect.ProxyState:
    """Return the state of a proxy."""
    if proxy.session is None:
        return "Disconnected"
    if proxy.config.get() is None:
        return "Lagging"
    if any(proxy.rejections()):
        return "Refused"
    return "InSync" if proxy.settled() else "Lagging"


def _type(proxy: fleet.FleetProxy, name: inspect.TypeName, type_url: TypeUrl) -> ResourceType:
    subscription = proxy.session.subscriptions[type_url] if proxy.session else Subscription()
    config = (proxy.config.get() or {}).get(type_url, NO_RESOURCES)
    resources = len(subscription.target(config if isinstance(config, Resources) else Resources(config, {})))
    return ResourceType(
        type=name,
        resources=resources,
        held=resources - len(subscription.unacknowledged(config)),
        last_acknowledged_time=_time(proxy.timestamps.acknowledged.get(type_url, 0.0)),
    )


def with_version(proxy: fleet.FleetProxy, resource_type: ResourceType) -> ResourceType:
    """Return a copy of `resource_type` with the wanted version and the version that the proxy has acknowledged."""
    type_url = TYPES[resource_type.type]
    subscription = proxy.session.subscriptions[type_url] if proxy.session else Subscription()
    config = (proxy.config.get() or {}).get(type_url, NO_RESOURCES)
    expected = {key: config[key].digest for key in wanted_names(subscription, config)}
    held = {key: subscription.acknowledged[key].digest for key in expected if key in subscription.acknowledged}
    return structs.replace(resource_type, version=_version(expected), held_version=_version(held))


def wanted_names(subscription: Subscription, config: Mapping[str, Encoded]) -> Sequence[str]:
    """Return the names of the resources in a proxy's configuration to which the proxy subscribes."""
    return list(config) if subscription.wildcard else sorted(subscription.subscribed & config.keys())


def _version(digests: Mapping[str, str]) -> str:
    """Return one digest of the names and versions of all resources; empty if there are no resources."""
    if not digests:
        return ""
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(digests.items()))
    return blake2b(text.encode(), digest_size=_VERSION_BYTES).hexdigest()


def _refusal(proxy: fleet.FleetProxy, rejected: Rejection, origin: Origin) -> Refusal:
    last = proxy.timestamps.rejected
    return Refusal(
        type=_NAMES[rejected.type_url],
        resource=rejected.name,
        message=rejected.message.strip(),
        object=own_key(origin(proxy.id, rejected.type_url, rejected.name)),
        rejection_time=_time(last[1]) if last and last[0] == rejected else None,
    )


def own_key(key: Key) -> Key | None:
    """Return the key of a user's object; None for a key of kind Proxy, which belongs to no object."""
    return None if key.kind == PROXY else key


def _time(seconds: float) -> Time:
    return timestamp(seconds) if seconds else None
