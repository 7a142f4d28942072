"""Pods with a proxy of their own, as their callers and their own proxy need to know them."""

import enum
from typing import Literal

from headgate.model.access import OPEN, Access
from headgate.model.protocols import Protocol
from headgate.model.refs import PortRef
from headgate.resources.meta import Value

PROBE_PORT = 15020  # where the orchestrator's health checks find a transparent sidecar


class Stage(enum.Enum):
    """How far a workload is from plaintext to mutual TLS.

    They are in order, and a workload moves by one at a time: each step is safe when every proxy holds the one before.
    """

    PLAIN = "plain"  # takes plaintext only, is sent plaintext
    READY = "ready"  # takes both, is sent plaintext
    PERMISSIVE = "permissive"  # takes both; callers with an identity send TLS
    STRICT = "strict"  # takes mutual TLS only

    @property
    def takes_tls(self) -> bool:
        """Whether its proxy accepts mutual TLS."""
        return self is not Stage.PLAIN

    @property
    def takes_plaintext(self) -> bool:
        """Whether its proxy accepts plaintext."""
        return self is not Stage.STRICT

    @property
    def is_sent_tls(self) -> bool:
        """Whether callers with an identity of their own call it with mutual TLS."""
        return self in {Stage.PERMISSIVE, Stage.STRICT}

    def towards(self, target: "Stage") -> "Stage":
        """Return the next stage on the way to a target."""
        order = list(Stage)
        here, there = order.index(self), order.index(target)
        return order[here + (there > here) - (there < here)]


class Spoken(Value, frozen=True, kw_only=True):
    """A protocol that is spoken on a port of a workload, and the Service ports that lead there with it."""

    protocol: Protocol
    services: tuple[PortRef, ...] = ()


class InboundPort(Value, frozen=True, kw_only=True):
    """A port of a workload. `application` is where its process listens: elsewhere only when capture is explicit.

    The first of `spoken` is what clients speak that do not say which Service they mean: that of the oldest (D15). Clients
    with mutual TLS say it by SNI (`server_name`), so each gets what his Service says.
    """

    port: int
    application: int
    spoken: tuple[Spoken, ...]


class Probe(Value, frozen=True, kw_only=True):
    """An HTTP health check of the orchestrator, which has no identity; `name` is `container/kind`.

    `https`: the application's own TLS, whose certificate nobody looks at.
    """

    name: str
    port: int
    path: str
    https: bool = False


class Workload(Value, frozen=True, kw_only=True):
    """A pod with a sidecar. `name` is `namespace/pod`, `identity` its SPIFFE ID, `subjects` the DNS names it shows (R75).

    `uid` tells it from other pods that have, or had, its name; empty where nobody knows.

    `stage` is what is in force, `target` what is wanted. A transparent sidecar sees everything that the pod's network
    carries; an explicit one is the pod's address and an HTTP proxy for its process.
    """

    name: str
    address: str
    identity: str
    uid: str = ""
    capture: Literal["transparent", "explicit"] = "transparent"
    subjects: tuple[str, ...] = ()
    ports: tuple[InboundPort, ...] = ()
    stage: Stage = Stage.PERMISSIVE
    target: Stage = Stage.PERMISSIVE
    access: Access = OPEN
    probes: tuple[Probe, ...] = ()


def server_name(ref: PortRef, domain: str) -> str:
    """Return the SNI with which clients say which Service port they mean: `8080.website.default.svc.cluster.local`."""
    namespace, service = ref.service.split("/")
    return f"{ref.port}.{service}.{namespace}.svc.{domain}"
