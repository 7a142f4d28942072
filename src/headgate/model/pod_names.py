"""The names that pods get from headless Services, such as `db-0.db.default` (D37; Kubernetes DNS specification, 2.4.1).

A name leads to one pod, without the routes of its Service; the port is that of the pod.
"""

from collections.abc import Mapping

from headgate.model.authorities import DEFAULT_NAMESPACE, DEFAULT_PORT, canonical
from headgate.model.routing import Endpoint, Mesh, PortRef


def named_pods(mesh: Mesh) -> Mapping[PortRef, tuple[Endpoint, ...]]:
    """Return the endpoints with a hostname of each Service port; ports without one are missing.

    If several ports of a Service lead to one port of a pod, the first one has the pod: its name and port occur once.
    """
    named: dict[PortRef, tuple[Endpoint, ...]] = {}
    taken: set[tuple[str, str, int]] = set()
    for entry in mesh.endpoints:
        pods = {(entry.ref.service, pod.hostname, pod.port): pod for pod in reversed(entry.ready) if pod.hostname}
        if own := tuple(pod for key, pod in reversed(pods.items()) if key not in taken):
            named[entry.ref] = own
        taken |= pods.keys()
    return named


def full_names(ref: PortRef, pod: Endpoint, domain: str) -> list[str]:
    """Return the names of a pod that are valid in every namespace; none for a pod without a hostname.

    In the namespace `svc`, the shortest one would be a name of a Service: `db-0.db.svc` is `db-0` in the namespace `db`.
    """
    namespace, service = ref.service.split("/")
    name = f"{pod.hostname}.{service}.{namespace}"
    shortest = [name] if namespace != "svc" else []
    return [*shortest, f"{name}.svc", f"{name}.svc.{domain}"] if pod.hostname else []


def short_name(ref: PortRef, pod: Endpoint) -> str:
    """Return the name of a pod that is valid in its own namespace only."""
    return f"{pod.hostname}.{ref.service.partition('/')[2]}"


def with_port(name: str, pod: Endpoint) -> list[str]:
    """Return the authorities of a name; port 80 can be omitted."""
    return [f"{name}:{pod.port}", *([name] if pod.port == DEFAULT_PORT else [])]


def find(mesh: Mesh, authority: str, home: str = DEFAULT_NAMESPACE) -> tuple[PortRef, Endpoint] | None:
    """Return the pod that a client in the namespace `home` calls by its name; a short name means a pod before a Service."""
    requested = canonical(authority).lower()
    for ref, several in named_pods(mesh).items():
        is_home = ref.service.startswith(f"{home}/")
        for pod in several:
            names = [*full_names(ref, pod, mesh.domain), *([short_name(ref, pod)] if is_home else [])]
            if any(requested in with_port(name, pod) for name in names):
                return ref, pod
    return None
