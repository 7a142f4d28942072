"""A rotation waits for each proxy that holds, or may hold, old roots or an old certificate (R74, R76)."""

import time
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.envoy.config import CLUSTER, LISTENER, SECRET, Encoded
from headgate.envoy.names import IDENTITY, ROOTS
from headgate.identity.authority import new_root
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import CertificateSpec, IssueError
from headgate.identity.keys import CURRENT, FileKeyStore, StoredAuthority
from headgate.model.identities import Credential, PrivateText
from headgate.plane.trust import CertificateHolders, Trust
from headgate.settings import Settings
from headgate.xds.fleet import Fleet, FleetProxy
from headgate.xds.messages import DeltaRequest
from headgate.xds.session import Session

SIDECAR = "sidecar/default/web"
CREDENTIAL = Credential(chain="chain", key=PrivateText("key"), roots="the old and the new root")
CONFIG = {
    CLUSTER: {"a": Encoded(b"", "1", frozenset())},
    SECRET: {name: Encoded(b"", "new", frozenset()) for name in (IDENTITY, ROOTS)},
}
OLD = {IDENTITY: "new", ROOTS: "old"}


class Loop:
    """A control loop that has sent the same certificate to every proxy."""

    def credential_of(self, _node_id: str) -> Credential:
        return CREDENTIAL


@pytest.fixture
def fleet() -> Fleet:
    """Return a fleet with a disconnected proxy, which an earlier headgate configured."""
    found = Fleet()
    found.expect(SIDECAR).config.set(CONFIG)
    found.assume_configured()
    return found


def lagging(fleet: Fleet) -> list[str]:
    return list(CertificateHolders(Loop(), fleet).lagging({SIDECAR: CREDENTIAL}))


def reconnect(proxy: FleetProxy) -> Session:
    """Reconnect a proxy that already has a cluster; return its session."""
    session = Session()
    session.receive(DeltaRequest(CLUSTER, initial={"a": "1"}))
    proxy.attach(session, lambda _ending: None)
    session.set_config(CONFIG)
    assert session.next_responses() == []
    return session


def test_a_disconnected_proxy_counts_as_lagging_because_it_may_have_the_old_roots(fleet: Fleet) -> None:
    assert lagging(fleet) == [SIDECAR]


def test_a_reconnecting_proxy_lags_until_it_acknowledges_the_new_roots(fleet: Fleet) -> None:
    """The proxy subscribes to clusters first. Without the new roots, it would reject peers with new certificates."""
    session = reconnect(fleet.proxies[SIDECAR])
    session.receive(DeltaRequest(LISTENER))
    assert lagging(fleet) == [SIDECAR]
    session.receive(DeltaRequest(SECRET, (IDENTITY, ROOTS), initial=OLD))
    assert lagging(fleet) == [SIDECAR]
    secrets, _ = session.next_responses()
    assert [name for name, _ in secrets.resources] == [ROOTS]
    session.receive(DeltaRequest(SECRET, nonce=secrets.nonce))
    assert lagging(fleet) == []


def test_a_proxy_without_a_subscription_to_secrets_does_not_lag(fleet: Fleet) -> None:
    session = reconnect(fleet.proxies[SIDECAR])
    assert lagging(fleet) == [SIDECAR]
    assert session.confirm_report()
    (response,) = session.next_responses()
    session.receive(DeltaRequest(CLUSTER, nonce=response.nonce))
    assert lagging(fleet) == []


async def test_only_a_root_with_a_usable_key_is_replaced_after_it_has_expired(tmp_path: Path) -> None:
    """The control plane waits for the replacement; without the key it never comes."""
    keys = FileKeyStore(tmp_path)
    await keys.save(StoredAuthority(signing=new_root("cluster.local", time.time() - 400 * 86_400)))
    issuer = EmbeddedIssuer(keys, "cluster.local", clock=time.time)
    trust, wanted = Trust(issuer, Settings()), CertificateSpec(identity="spiffe://cluster.local/ns/default/sa/web")
    key = tmp_path / CURRENT / "tls.key"
    key.chmod(0o644)
    with pytest.raises(IssueError, match="open to other users"):
        await issuer.issue(wanted, timedelta(hours=1))
    assert not trust.replaces_roots
    key.chmod(0o600)
    with pytest.raises(IssueError, match="expired"):
        await issuer.issue(wanted, timedelta(hours=1))
    assert trust.replaces_roots
