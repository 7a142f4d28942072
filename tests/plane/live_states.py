"""The live state of a control plane without a running loop."""

from tests.identity.fakes import FakeIssuer, Time
from tests.make.values import compiled

from headgate.compiler.snapshot import Snapshot
from headgate.envoy.config import CLUSTER
from headgate.envoy.view import Node
from headgate.identity.credentials import Credentials
from headgate.latest import Latest
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed
from headgate.plane.live_state import LiveState
from headgate.plane.loop import Loop
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet
from headgate.xds.messages import DeltaRequest
from headgate.xds.session import Session

GATEWAY = "gateway"


def live_state_of(snapshot: Snapshot) -> LiveState:
    """Return the live state of a control plane that has read a snapshot, and whose gateway is settled."""
    store, fleet = MemoryStore(), Fleet()
    feed = Feed(store)
    credentials = Credentials(FakeIssuer(Time()), Time().schedule())
    loop = Loop(Latest(None), fleet, HostProxies([Node(id=GATEWAY)]), Settings(), credentials)
    found = LiveState(store, feed, loop, fleet)
    feed.snapshot.set(snapshot)
    loop.compiled.set(compiled())
    connect(fleet, GATEWAY)
    return found


def connect(fleet: Fleet, node: str, *, has_config: bool = True) -> None:
    """Let a proxy open a stream; with `has_config`, it has acknowledged an empty configuration."""
    proxy = fleet.expect(node)
    session = Session()
    session.receive(DeltaRequest(CLUSTER))
    proxy.attach(session, lambda _ending: None)
    if has_config:
        proxy.config.set({})
        session.set_config({})
        (response,) = session.next_responses()
        session.receive(DeltaRequest(CLUSTER, nonce=response.nonce))
