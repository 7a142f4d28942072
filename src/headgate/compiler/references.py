"""From the names that users write to the Services that they mean (R2, R29, D12)."""

from headgate.compiler.snapshot import Snapshot
from headgate.resources.gateway import ReferenceGrant
from headgate.resources.meta import Key


def service_name(written: str, namespace: str, domain: str) -> str:
    """Return `namespace/name` for a Service written in any of its forms; empty when it is none of them.

    The forms are `website`, `website.ns`, `website.ns.svc` and `website.ns.svc.<domain>`; case does not matter.
    """
    parts = written.lower().removesuffix(".").split(".", 2)
    if not all(parts) or parts[2:] not in ([], ["svc"], [f"svc.{domain.lower()}"]):
        return ""
    return f"{parts[1] if len(parts) > 1 else namespace}/{parts[0]}"


def missing(name: str, written: str) -> str:
    """Say that a Service is not found; `name` is what `service_name` returns for the written name."""
    if name:
        return f"Service {name} not found"
    return f"{written} is not the name of a Service in this cluster; write NAME, NAME.NAMESPACE or NAME.NAMESPACE.svc"


def permitted(snapshot: Snapshot, about: Key, target: str, *, kind: str = "Service") -> bool:
    """Say whether `about` may refer to a Service (or Secret): in its own namespace always, else by a ReferenceGrant."""
    namespace, name = target.split("/")
    if namespace == about.namespace:
        return True
    grants = snapshot.grants.get(namespace, ())
    return any(_allows_from(grant, about) and _allows_to(grant, name, kind) for grant in grants)


def _allows_from(grant: ReferenceGrant, about: Key) -> bool:
    wanted = (about.group, about.kind, about.namespace)
    return any((source.group, source.kind, source.namespace) == wanted for source in grant.spec.from_)


def _allows_to(grant: ReferenceGrant, name: str, kind: str) -> bool:
    return any((to.group, to.kind) == ("", kind) and to.name in {"", name} for to in grant.spec.to)


def grant_hint(about: Key, target: str, *, kind: str = "Service") -> str:
    """Tell the user which ReferenceGrant would allow the reference."""
    namespace, name = target.split("/")
    return (
        f"create a ReferenceGrant in the namespace {namespace} from group {about.group}, kind {about.kind}, namespace "
        f"{about.namespace} to kind {kind}, name {name}"
    )
