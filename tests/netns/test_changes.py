"""Changes while a transparent sidecar serves: no request is lost, and what is new is in force when the proxy holds it.

A sidecar keeps the filter chain that its listeners share, and its scopes, as long as it lives (ADR 0006). An upgrade of
headgate may change both.
"""

import asyncio
from collections import Counter
from contextlib import closing

import pytest
from tests.netns.conftest import WEB, Where
from tests.netns.objects import mirror, served, split
from tests.netns.traffic import PATIENCE_S, answered, ask, connect

from headgate.envoy import pb
from headgate.envoy.config import CHAIN, SCOPES
from headgate.envoy.encode import encode_resource

NEW = Where("10.96.0.30", 80)
CONNECTIONS = 4
ANOTHER_HEADER = "x-another-address"


class Flow:
    """Requests of a pod to a Service over kept connections. `counts` are the answers; `opened` are the connections so far."""

    def __init__(self, lab, pod, where):
        self.counts = Counter()
        self.opened = 0
        self._lab = lab
        self._pod = pod
        self._where = where
        self._left = False

    def __enter__(self):
        self._work = [self._lab.network.begin(self._flow()) for _ in range(CONNECTIONS)]
        self.goes_on()
        return self

    def __exit__(self, *_):
        self._left = True
        for work in self._work:
            work.result(PATIENCE_S)

    async def _flow(self):
        while not self._left:
            reader, writer = await connect(self._pod, *self._where)
            self.opened += 1
            with closing(writer):
                while not (self._left or reader.at_eof()):
                    answer = await answered(reader, writer, "GET", "/")
                    self.counts[answer.body if answer.status == 200 else answer.status] += 1
                    if answer.status == 0 or answer.headers.get("connection") == "close":
                        break
                    await asyncio.sleep(0)

    def goes_on(self, more=50):
        """Wait until more requests were answered."""
        wanted = self.counts.total() + more
        self.until(lambda: self.counts.total() >= wanted)

    def until(self, condition):
        """Wait for something that the requests bring about."""

        async def wait():
            async with asyncio.timeout(PATIENCE_S):
                while not condition():
                    await asyncio.sleep(0.01)

        self._lab.run(wait())


@pytest.fixture
def client(lab):
    return lab.members["client"]


def test_services_routes_and_mirrors_come_and_go(lab, services, client):
    new = served("new", NEW.host, [lab.members["two"]], port=NEW.port, target=8080)
    lab.serve(*services)
    with Flow(lab, client, WEB) as flow:
        for _ in range(3):
            lab.serve(*services, *new)
            assert lab.run(ask(client, NEW)).body == "two"
            lab.serve(*services, *new, split("canary", "new", one=1))
            assert lab.run(ask(client, NEW)).body == "one"
            for change in (
                split("canary", "web", one=1),
                split("canary", "web", two=1),
                mirror("copies", "web", 80, "one"),
            ):
                lab.serve(*services, *new, change)
                flow.goes_on()
            lab.serve(*services)
    assert set(flow.counts) == {"one", "two"}


def other_manager(manager):
    manager.stat_prefix = "other"


def other_scopes(manager):
    manager.scoped_routes.name = "others"


def other_key(manager):
    """The address is in another header, which the scopes remove."""
    (mutation,) = manager.early_header_mutation_extensions
    early = pb.EarlyHeaderMutation.FromString(mutation.typed_config.value)
    early.mutations[0].append.header.key = ANOTHER_HEADER
    mutation.typed_config.CopyFrom(pb.pack(early))
    manager.scoped_routes.scope_key_builder.fragments[0].header_value_extractor.name = ANOTHER_HEADER


@pytest.mark.parametrize("edit", [other_manager, other_scopes, other_key])
def test_the_shared_chain_and_the_scopes_change_and_change_back(lab, services, client, edit):
    """Connections end with a response that says so; the next ones are served by the new chain, with scopes that come later."""
    lab.serve(*services)
    new = served("new", NEW.host, [lab.members["two"]], port=NEW.port, target=8080)
    with Flow(lab, client, WEB) as flow:
        for more in ((), new):
            for change in (lambda config: changed(config, edit), lambda config: config):
                before = flow.opened
                lab.serve(*services, *more, change=change)
                assert not more or lab.run(ask(client, NEW)).body == "two"
                flow.until(lambda wanted=before + CONNECTIONS: flow.opened >= wanted)
                flow.goes_on()
            lab.serve(*services)
    assert set(flow.counts) == {"one", "two"}


def changed(config, edit):
    """Return a configuration with another shared chain."""
    removed = [ANOTHER_HEADER] if edit is other_key else None
    found = {**config, CHAIN: {}, SCOPES: {}}
    for name, encoded in config[CHAIN].items():
        chain = pb.FilterChain.FromString(pb.Resource.FromString(encoded.body).resource.value)
        manager = pb.HttpConnectionManager.FromString(chain.filters[0].typed_config.value)
        edit(manager)
        chain.filters[0].typed_config.CopyFrom(pb.pack(manager))
        found[CHAIN][name] = encode_resource(name, chain, encoded.needs)
    for name, encoded in config[SCOPES].items():
        scope = pb.ScopedRouteConfiguration.FromString(pb.Resource.FromString(encoded.body).resource.value)
        if removed:
            scope.route_configuration.request_headers_to_remove[:] = removed
        found[SCOPES][name] = encode_resource(name, scope, encoded.needs)
    return found
