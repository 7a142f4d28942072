"""Compare TLS in two meshes: the modes of pods, and the certificates that clients of Gateways need."""

from collections.abc import Iterator

from headgate.model.edge_tls import words
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import GatewayPort
from headgate.plan.world import ModeName, Origin, World
from headgate.resources.core.config_map import KIND as CONFIG_MAP
from headgate.resources.gateway_api.gateway import KIND as GATEWAY
from headgate.resources.inspect import Answer
from headgate.resources.meta import Key
from headgate.resources.registry import TLS_CONFIG


class TlsChange(Answer, frozen=True, kw_only=True):
    """Pods whose TLS mode changes."""

    pods: tuple[str, ...]
    before: ModeName
    after: ModeName
    causes: tuple[Origin, ...] = ()


class ClientCertificateChange(Answer, frozen=True, kw_only=True):
    """A port of a Gateway whose clients need other certificates. The messages say which."""

    gateway: str
    port: int
    before_message: str
    after_message: str
    causes: tuple[Origin, ...] = ()


def tls_changes(world: World) -> Iterator[TlsChange]:
    """Yield the workloads that get another TLS mode."""
    old = {workload.name: workload.target_tls_mode for workload in world.before.mesh.workloads}
    by_modes: dict[tuple[TlsMode, TlsMode], list[str]] = {}
    for workload in world.after.mesh.workloads:
        mode = old.get(workload.name, workload.target_tls_mode)
        if mode is not workload.target_tls_mode:
            by_modes.setdefault((mode, workload.target_tls_mode), []).append(workload.name)
    causes = tuple(world.cause(key, "spec") for key in sorted(world.changed) if key.kind == TLS_CONFIG.kind)
    for (was, now), pods in by_modes.items():
        before, after = was.value.capitalize(), now.value.capitalize()
        yield TlsChange(pods=tuple(sorted(pods)), before=before, after=after, causes=causes)


def client_certificate_changes(world: World) -> Iterator[ClientCertificateChange]:
    """Yield the ports of Gateways that accept clients in both meshes, with other certificates of clients."""
    old, new = (
        {(port.gateway, port.port): port for port in side.mesh.gateways} for side in (world.before, world.after)
    )
    for place in sorted(old.keys() & new.keys()):
        before, after = old[place].client_certificates, new[place].client_certificates
        if before != after:
            was, now = words(before), words(after)
            if was == now:
                now = f"{now}, with other authorities"
            causes = tuple(
                world.cause(key, field) for key, field in _deciding(old[place], new[place]) if key in world.changed
            )
            yield ClientCertificateChange(
                gateway=place[0], port=place[1], before_message=was, after_message=now, causes=causes
            )


def _deciding(*ports: GatewayPort) -> Iterator[tuple[Key, str]]:
    """Yield the objects that decide which certificates clients need: the Gateway, and the ConfigMaps with authorities."""
    yield GATEWAY.key(*ports[0].gateway.split("/")), "spec.tls.frontend"
    sources = (name for port in ports if port.client_certificates for name in port.client_certificates.sources)
    yield from ((CONFIG_MAP.key(*name.split("/")), "data") for name in dict.fromkeys(sources))
