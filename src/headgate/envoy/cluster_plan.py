"""A cluster before it is rendered: the localities of its backends, and their peers."""

from math import lcm

from msgspec import structs

from headgate.envoy.upstream_tls import ExpectedPeer, Peer, peer_key
from headgate.model.edge_tls import BackendTls
from headgate.model.resilience import DEFAULT, Resilience
from headgate.model.routing import Endpoint, Protocol
from headgate.resources.meta import Value
from headgate.resources.weights import LARGEST_SUM

PERCENT_STEPS = (33, 20, 10, 5, 2, 1)


class Locality(Value, frozen=True, kw_only=True):
    """The endpoints of one backend (`namespace/name`) and its weight within the cluster.

    `server_name` is the SNI of the backend's port, for endpoints with an identity. It is empty if the proxy has no
    identity of its own, and then all endpoints are called in plaintext. `opaque`: the port is not HTTP. `root` is that of
    the backend's `Target`. A Gateway calls the `server` with TLS instead, by a policy. A `standby` gets requests only while the other backends have no endpoint, and retries.
    """

    backend: str
    weight: int
    endpoints: tuple[Endpoint, ...]
    server_name: str = ""
    opaque: bool = False
    root: str = ""
    server: BackendTls | None = None
    standby: bool = False

    def peer(self, endpoint: Endpoint) -> Peer | None:
        """Return the peer whose identity an endpoint must prove; None if it is called in plaintext."""
        if self.server:
            return self.server
        if not endpoint.identity or not self.server_name:
            return None
        return ExpectedPeer(identity=endpoint.identity, server_name=self.server_name, opaque=self.opaque)

    @property
    def uses_tls(self) -> bool:
        """Whether at least one endpoint is called with TLS."""
        return any(self.peers)

    @property
    def peers(self) -> set[Peer | None]:
        """The peers of all endpoints; None stands for plaintext."""
        return {self.peer(endpoint) for endpoint in self.endpoints}

    def split_by_tls(self) -> list["Locality"]:
        """Divide the locality into one for TLS endpoints and one for plaintext endpoints; empty ones are omitted."""
        secured = tuple(endpoint for endpoint in self.endpoints if self.peer(endpoint))
        plaintext = tuple(endpoint for endpoint in self.endpoints if not self.peer(endpoint))
        return [structs.replace(self, endpoints=endpoints) for endpoints in (secured, plaintext) if endpoints]


class ClusterPlan(Value, frozen=True, kw_only=True):
    """One cluster and its localities. A mirror cluster (`is_mirror`) receives only mirrored requests.

    With `counts_sizes`, proxies count the sizes of its responses. `resilience` is that of the called Service. `servers` are
    called by policies; a cluster has their TLS before they have an endpoint, so that the first one gets no plaintext.
    """

    name: str
    localities: tuple[Locality, ...] = ()
    protocol: Protocol = Protocol.HTTP
    is_mirror: bool = False
    counts_sizes: bool = False
    resilience: Resilience = DEFAULT
    servers: tuple[BackendTls, ...] = ()

    @property
    def settings(self) -> Resilience:
        """The settings to render: no whole backend is ejected, so that shares stay exact.

        Envoy limits the percentage of a cluster's endpoints that are ejected. Of several backends, the smallest one
        keeps an endpoint even if all ejected ones are its own. The percentage has few steps, because each change to a
        cluster replaces its connections. Ejection is off if no endpoint could be ejected, and for mirrors.
        """
        settings = self.resilience
        ejection = None if self.is_mirror else settings.ejection
        sizes = [len(locality.endpoints) for locality in self.localities_by_tls]
        if ejection and sizes[1:]:
            steps = (min(step, ejection.max_percent) for step in PERCENT_STEPS)
            percent = next((step for step in steps if 1 <= step * sum(sizes) // 100 < min(sizes)), 0)
            ejection = structs.replace(ejection, max_percent=percent) if percent else None
        return structs.replace(
            settings, ejection=ejection, timeouts=structs.replace(settings.timeouts, request=0, attempt=0)
        )

    @property
    def localities_by_tls(self) -> tuple[Locality, ...]:
        """The localities, divided into endpoints with TLS and endpoints in plaintext; each backend keeps its share.

        So an endpoint that changes to TLS moves to another locality. For Envoy it is then a new endpoint with new
        connections. Otherwise Envoy would continue to use the open plaintext connections. The localities stay undivided
        if their weights would exceed Envoy's limit.
        """
        parts = [locality.split_by_tls() for locality in self.localities]
        scale = lcm(
            *(len(locality.endpoints) for locality, several in zip(self.localities, parts, strict=True) if several[1:])
        )
        if scale * sum(locality.weight for locality in self.localities) > LARGEST_SUM:
            return self.localities
        return tuple(
            structs.replace(part, weight=locality.weight * scale * len(part.endpoints) // len(locality.endpoints))
            for locality, several in zip(self.localities, parts, strict=True)
            for part in several
        )

    @property
    def uses_dns(self) -> bool:
        """Whether the cluster is for an external DNS name, its only endpoint."""
        return any(endpoint.resolved for locality in self.localities for endpoint in locality.endpoints)

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The peers of all endpoints and the servers; empty if all are called in plaintext."""
        peers = {peer for locality in self.localities for peer in locality.peers if peer}
        by_key = {peer_key(peer): peer for peer in (*peers, *self.servers)}
        return tuple(by_key[key] for key in sorted(by_key))
