"""Whom a rotation waits for: who still has roots or a certificate of before, also who has not said so yet (R74, R76)."""

import pytest

from headgate.envoy.config import CLUSTER, SECRET, Encoded
from headgate.envoy.names import IDENTITY, ROOTS
from headgate.model.identities import Credential, PrivateText
from headgate.plane.trust import CertificateHolders
from headgate.xds.fleet import Fleet, Proxy
from headgate.xds.session import Request, Session
from headgate.xds.shelf import Response

SIDECAR = "sidecar/default/web"
CREDENTIAL = Credential(chain="chain", key=PrivateText("key"), roots="the old and the new")
CONFIG = {
    CLUSTER: {"a": Encoded(b"", "1", frozenset())},
    SECRET: {name: Encoded(b"", "new", frozenset()) for name in (IDENTITY, ROOTS)},
}
OLD = {IDENTITY: "new", ROOTS: "old"}


class Loop:
    """Everybody's configuration was made with the same certificate."""

    def credential_of(self, _node_id: str) -> Credential:
        return CREDENTIAL


@pytest.fixture
def fleet() -> Fleet:
    """A proxy that an earlier headgate has told something, and that is away."""
    found = Fleet()
    found.expect(SIDECAR).config.set(CONFIG)
    found.recall()
    return found


def lagging(fleet: Fleet) -> list[str]:
    return list(CertificateHolders(Loop(), fleet).lagging({SIDECAR: CREDENTIAL}))


def comes(proxy: Proxy) -> tuple[Session, Response]:
    """Let a proxy come back with the cluster that it has; return what it is sent."""
    session = Session()
    session.receive(Request(CLUSTER, initial={"a": "1"}))
    proxy.attach(session, lambda _ending: None)
    session.offer(CONFIG)
    (answer,) = session.advance()
    return session, answer


def test_who_is_away_may_have_the_old_roots(fleet: Fleet) -> None:
    assert lagging(fleet) == [SIDECAR]


def test_who_comes_back_is_waited_for_until_he_has_told_which_roots_he_has(fleet: Fleet) -> None:
    """He tells of clusters first: taken for somebody without secrets, he would refuse the others' new certificates."""
    session, answer = comes(fleet.proxies[SIDECAR])
    assert lagging(fleet) == [SIDECAR]
    session.receive(Request(SECRET, (IDENTITY, ROOTS), initial=OLD))
    session.receive(Request(CLUSTER, nonce=answer.nonce))
    assert lagging(fleet) == [SIDECAR]
    (secrets,) = session.advance()
    assert [name for name, _ in secrets.resources] == [ROOTS]
    session.receive(Request(SECRET, nonce=secrets.nonce))
    assert lagging(fleet) == []


def test_who_has_told_everything_and_asked_for_no_secrets_needs_none(fleet: Fleet) -> None:
    session, answer = comes(fleet.proxies[SIDECAR])
    session.receive(Request(CLUSTER, nonce=answer.nonce))
    assert lagging(fleet) == []
