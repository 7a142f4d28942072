"""The session under adversarial schedules, against a model of Envoy that behaves as the real one was observed to.

The model answers late, rejects invalid resources, applies the valid part of a rejected response, delays its ACK of clusters
while one is warming, disconnects, and reconnects as the same process or as a new one.
"""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tests.make.strategies import picked, subsets

from headgate.envoy.config import (
    CHAIN,
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    NO_RESOURCES,
    ORDER,
    ROUTES,
    RUNTIME,
    SCOPES,
    SECRET,
    Encoded,
    Resources,
)
from headgate.xds import session, versions
from headgate.xds.messages import DeltaRequest
from headgate.xds.session import Session

INVALID = "3"  # versions that begin with this are rejected
ENOUGH_STEPS = 300
NAMED = {ENDPOINTS, SECRET, ROUTES, RUNTIME, CHAIN}
LAYER = "t"  # the runtime layer, to which a proxy is always subscribed
INLINE = "own"  # the scope with inline routes
TLS = "r"  # the listener with a certificate, whose secret has the same name


def is_invalid(digest):
    return digest.startswith(INVALID)


def needs_of(digest):
    return frozenset(digest.partition(":")[2])


VERSIONS = ("1", "2", "1", "2", "1", "2", INVALID)
CLUSTERS = "abc"
PARTS = picked(subsets(CLUSTERS), subsets("qr"), subsets("abqrt"), VERSIONS)
CLUSTER_VERSIONS = picked(*(VERSIONS,) * 6)
ROUTE_FIELDS = picked(VERSIONS, subsets(CLUSTERS), VERSIONS, (False, True), VERSIONS)
INLINE_FIELDS = picked((False, True), VERSIONS, subsets(CLUSTERS), VERSIONS)


@st.composite
def configs(draw):
    """Draw a configuration of clusters a to c with endpoints, and routes q and r with a listener and perhaps a scope.

    The listener of r has a secret. The scope `own` contains its routes.
    """
    config = {type_url: {} for type_url in ORDER}
    clusters, routes, own, runtime = draw(PARTS)
    config[RUNTIME][LAYER] = encoded(runtime)
    versions = iter(draw(CLUSTER_VERSIONS) if clusters else ())
    for name in clusters:
        for type_url in (CLUSTER, ENDPOINTS):
            config[type_url][name] = encoded(next(versions))
    has_inline, version, needs, secret = draw(INLINE_FIELDS)
    if has_inline:
        config[SCOPES][INLINE] = routing(version, needs, clusters)
    for name in routes:
        version, needs, listener, has_scope, scope = draw(ROUTE_FIELDS)
        config[ROUTES][name] = routing(version, needs, clusters)
        config[LISTENER][name] = encoded(listener)
        if has_scope:
            config[SCOPES][f"h-{name}"] = encoded(scope)
        if name == TLS:
            config[SECRET][name] = encoded(secret)
    return {type_url: with_own(resources, own) for type_url, resources in config.items()}


def routing(version, needs, clusters):
    """Return routes of a version that need those of `needs` that exist."""
    return encoded(f"{version}:{''.join(name for name in needs if name in clusters)}")


def with_own(resources, own):
    """Return resources; those whose name is in `own` belong to the proxy, the rest is shared."""
    common = {name: item for name, item in resources.items() if name not in own}
    return Resources(common, {name: item for name, item in resources.items() if name in own})


def with_same_objects(config, before):
    """Return the configuration, but with the objects of `before` where parts are equal, as the encoder does."""
    found = {}
    for type_url, resources in config.items():
        last = before.get(type_url, NO_RESOURCES)
        common = last.common if last.common == resources.common else resources.common
        same = common is last.common and last.own == resources.own
        found[type_url] = last if same else Resources(common, resources.own)
    return found


def encoded(digest):
    return Encoded(b"x", digest, needs_of(digest))


class Envoy:
    """A model of Envoy: the resources that it applies, and the requests that it will send."""

    def __init__(self):
        self.active, self.warming, self.endpoints = {}, {}, {}
        self.listeners, self.scopes, self.routes, self.secrets, self.runtime = {}, {}, {}, {}, {}
        self.versions = {type_url: {} for type_url in ORDER}  # what it would report on the next stream
        self.subscribed = {type_url: set() for type_url in NAMED} | {RUNTIME: {LAYER}}
        self.disconnect()

    def disconnect(self):
        if not self.listeners:  # without a listener there are no scopes and no routes
            self.scopes.clear()
            self.versions[SCOPES].clear()
            for name in sorted(self.subscribed[ROUTES]):
                self.unsubscribe(ROUTES, name)
        self.inbox, self.opened = [], set()
        self.first_requests = {type_url for type_url in ORDER if type_url not in NAMED or self.subscribed[type_url]}
        self.answers = defaultdict(list)
        self.subscribes, self.unsubscribes = defaultdict(set), defaultdict(set)

    def applied(self):
        return {
            CLUSTER: self.active | self.warming,
            ENDPOINTS: self.endpoints,
            SECRET: self.secrets,
            RUNTIME: self.runtime,
            CHAIN: {},
            LISTENER: self.listeners,
            SCOPES: self.scopes,
            ROUTES: self.routes,
        }

    def is_partly_applied(self):
        """Return whether a rejected response was applied in part: then Envoy reports other versions than it applies."""
        return self.applied() != self.versions

    def serves(self, cluster):
        return cluster in self.active and cluster in self.endpoints

    def subscribe(self, type_url, name):
        if name not in self.subscribed[type_url]:
            self.subscribed[type_url].add(name)
            self.unsubscribes[type_url].discard(name)
            self.subscribes[type_url].add(name)

    def unsubscribe(self, type_url, name):
        if name in self.subscribed[type_url]:
            self.subscribed[type_url].discard(name)
            self.subscribes[type_url].discard(name)
            self.unsubscribes[type_url].add(name)
            self.applied()[type_url].pop(name, None)
            self.versions[type_url].pop(name, None)

    def can_read(self):
        """Return whether a response may be read: Envoy reads none until it has sent its first request of each type."""
        return self.inbox and not any(self.can_send(type_url) for type_url in self.first_requests - self.opened)

    def can_send(self, type_url):
        if type_url == CLUSTER and self.warming:
            return False
        if type_url not in self.opened:
            return type_url not in NAMED or bool(self.subscribed[type_url])
        return bool(self.answers[type_url] or self.subscribes[type_url] or self.unsubscribes[type_url])

    def next_request(self, type_url):
        """Return the next request of a type, which combines an ACK or NACK with changed subscriptions."""
        subscribes, unsubscribes = self.subscribes.pop(type_url, set()), self.unsubscribes.pop(type_url, set())
        if type_url not in self.opened:
            self.opened.add(type_url)
            subscribe = tuple(sorted(self.subscribed.get(type_url, ())))
            return DeltaRequest(type_url, subscribe, (), dict(self.versions[type_url]))
        nonce, error = self.answers[type_url].pop(0) if self.answers[type_url] else ("", None)
        return DeltaRequest(type_url, tuple(sorted(subscribes)), tuple(sorted(unsubscribes)), {}, nonce, error)

    def apply(self, response):
        apply = {
            CLUSTER: self.apply_clusters,
            ENDPOINTS: self.apply_endpoints,
            SECRET: self.apply_secrets,
            RUNTIME: self.apply_runtime,
            LISTENER: self.apply_listeners,
            ROUTES: self.apply_routes,
            SCOPES: self.apply_scopes,
        }
        bad = any(is_invalid(item.digest) for _, item in response.resources)
        apply[response.type_url](response)
        self.answers[response.type_url].append((response.nonce, "bad" if bad else None))
        if not bad:
            versions_of_type = self.versions[response.type_url]
            for name, item in response.resources:
                if response.type_url not in NAMED or name in self.subscribed[response.type_url]:
                    versions_of_type[name] = item.digest
            for name in response.removed:
                versions_of_type.pop(name, None)

    def apply_clusters(self, response):
        for name, item in response.resources:
            if not is_invalid(item.digest) and self.warming.get(name, self.active.get(name)) != item.digest:
                self.warming[name] = item.digest
                self.subscribe(ENDPOINTS, name)
        for name in response.removed:
            self.active.pop(name, None)
            self.warming.pop(name, None)
            self.unsubscribe(ENDPOINTS, name)

    def apply_endpoints(self, response):
        for name in response.removed:  # a removal of the endpoints ends warming too
            if name in self.warming:
                self.active[name] = self.warming.pop(name)
        for name, item in response.resources:
            if is_invalid(item.digest):
                self.warm_up()  # a NACK ends the warming of all clusters
                return
            if name in self.subscribed[ENDPOINTS]:
                self.endpoints[name] = item.digest
                if name in self.warming:
                    self.active[name] = self.warming.pop(name)

    def warm_up(self):
        self.active |= self.warming
        self.warming.clear()

    def apply_listeners(self, response):
        for name, item in response.resources:
            if not is_invalid(item.digest):
                self.listeners[name] = item.digest
                self.subscribe(ROUTES, name)
                if name == TLS:
                    self.subscribe(SECRET, name)
        for name in response.removed:
            self.listeners.pop(name, None)

    def apply_scopes(self, response):
        if any(is_invalid(item.digest) for _, item in response.resources):
            return  # Envoy applies all scopes of a response or none
        for name, item in response.resources:
            self.scopes[name] = item.digest
            if name != INLINE:
                self.subscribe(ROUTES, name.removeprefix("h-"))
        for name in response.removed:
            self.scopes.pop(name, None)

    def apply_secrets(self, response):
        for name, item in response.resources:
            if is_invalid(item.digest):
                return
            if name in self.subscribed[SECRET]:
                self.secrets[name] = item.digest

    def apply_runtime(self, response):
        for name, item in response.resources:
            if not is_invalid(item.digest):
                self.runtime[name] = item.digest

    def apply_routes(self, response):
        for name, item in response.resources:
            if is_invalid(item.digest):
                return
            if name in self.subscribed[ROUTES]:
                self.routes[name] = item.digest

    def drain(self):
        """Unsubscribe from the routes and secrets that no listener and no scope uses."""
        used = self.listeners.keys() | {name.removeprefix("h-") for name in self.scopes}
        for name in sorted(self.subscribed[ROUTES] - used):
            self.unsubscribe(ROUTES, name)
        if TLS not in self.listeners:
            self.unsubscribe(SECRET, TLS)


class Schedule(RuleBasedStateMachine):
    """One proxy and one server; each rule is an event that may happen next."""

    def __init__(self):
        super().__init__()
        self.envoy = Envoy()
        self.config = {}
        self.exempt = set()  # routes that may name a rejected cluster: the proxy had no other version of the route
        self.is_interrupted = False
        self.silent = False  # a response has timed out: make before break is no longer guaranteed
        self.connect()

    def connect(self, *, late=False):
        self.session = Session()
        self.built = not late  # a server that has just started gets requests before its first build
        if self.built:
            self.session.set_config(self.config)
        self.unanswered = defaultdict(dict)
        self.sent = {}  # the version that was last sent, until there is a reason to send it again
        self.endpoints_due = set()  # endpoints that must follow their cluster

    @rule(config=configs())
    def change(self, config):
        self.set_config(config)

    def set_config(self, config):
        self.config = config = with_same_objects(config, self.config)
        self.built = True
        self.session.set_config(config)
        self.push()

    @rule(choices=st.lists(st.integers(0, len(ORDER)), min_size=1, max_size=12))
    def deliver(self, choices):
        """Deliver one message for each choice, which selects a type of requests, or the responses.

        If the selected source has no message, the next source with a message is used.
        """
        for choice in choices:
            sources = [*ORDER[choice:], None, *ORDER[:choice]]
            self.move(next((source for source in sources if self.can_move(source)), None))

    def can_move(self, source):
        return self.envoy.can_read() if source is None else self.envoy.can_send(source)

    def move(self, source):
        if source is not None:
            self.receive(self.envoy.next_request(source))
        elif self.envoy.can_read():
            self.envoy.apply(self.envoy.inbox.pop(0))
            self.check_traffic()

    @rule()
    def rest(self):
        self.deliver_all()
        self.check_settled()
        self.confirm_report()
        self.deliver_all()
        assert self.session.has_reported_all

    @rule()
    def confirm_report(self):
        self.session.confirm_report()
        self.push()

    @rule()
    def drain(self):
        self.envoy.drain()

    @rule(restarted=st.booleans(), late=st.booleans())
    def reconnect(self, restarted, late):
        if restarted or self.envoy.is_partly_applied():
            self.envoy = Envoy()
            self.exempt.clear()
        # The disconnect may lose a response with endpoints for which a cluster is warming.
        self.is_interrupted = bool(self.envoy.warming)
        self.envoy.disconnect()
        self.connect(late=late)

    def receive(self, request):
        self.record_reasons(request)
        self.unanswered[request.type_url].pop(request.nonce, None)
        for rejected in self.session.receive(request):
            assert is_invalid(rejected.digest), rejected
        self.push()
        unreported = [one for one in self.envoy.first_requests - self.envoy.opened if self.envoy.versions[one]]
        assert not self.session.has_reported_all or not any(self.config.get(type_url) for type_url in unreported)

    def record_reasons(self, request):
        """Record reasons to send a resource again: a new subscription, or a NACK of several resources."""
        type_url = request.type_url
        for name, digest in request.initial.items():
            if (type_url, name) not in self.endpoints_due:
                self.sent[type_url, name] = digest
        again = set(request.subscribe) - set(request.initial)
        response = self.unanswered[type_url].get(request.nonce)
        if response and request.error is not None and len(response.resources) > 1:
            again |= {name for name, _ in response.resources}
        for name in again:
            self.sent.pop((type_url, name), None)

    def push(self):
        for response in self.session.next_responses() if self.built else ():
            self.check_sent(response)
            self.unanswered[response.type_url][response.nonce] = response
            self.envoy.inbox.append(response)
        self.check_memory()

    def check_memory(self):
        """Check that the session keeps no state of removed names."""
        for type_url, subscription in self.session.subscriptions.items():
            in_flight = {
                name for sent in subscription.in_flight.values() for name in (*dict(sent.resources), *sent.removed)
            }
            known = subscription.sent.keys() | subscription.acknowledged.keys() | subscription.subscribed | in_flight
            for names in (subscription.timed_out, subscription.uncertain, subscription.rejected):
                assert set(names) <= known
            wanted = self.config.get(type_url, {}).keys()
            for overlay in (subscription.sent, subscription.acknowledged):
                assert overlay.overrides.keys() <= known | wanted | overlay.base.keys()
        clusters, endpoints = self.session.subscriptions[CLUSTER], self.session.subscriptions[ENDPOINTS]
        assert endpoints.resend.keys() <= clusters.sent.keys() | endpoints.subscribed

    def check_sent(self, response):
        type_url = response.type_url
        assert not self.in_flight(type_url), "two responses of a type are in flight"
        for name, item in response.resources:
            assert self.sent.get((type_url, name)) != item.digest, f"{name} is sent twice without a reason"
            self.sent[type_url, name] = item.digest
            if type_url == CLUSTER:
                self.sent.pop((ENDPOINTS, name), None)
                self.endpoints_due.add((ENDPOINTS, name))
            self.check_needs(name, item)
        for name in response.removed:
            self.sent.pop((type_url, name), None)

    def check_needs(self, name, item):
        missing = {cluster for cluster in item.needs if not self.envoy.serves(cluster)}
        if not missing or self.silent:
            return
        rejected = {
            cluster
            for cluster in missing
            if is_invalid(self.config[CLUSTER][cluster].digest) or is_invalid(self.config[ENDPOINTS][cluster].digest)
        }
        assert missing == rejected, f"the route {name} is sent before its clusters {missing - rejected}"
        self.exempt.add((name, item.digest))

    def in_flight(self, type_url):
        return self.unanswered[type_url]

    def check_traffic(self):
        for name, digest in (*self.envoy.routes.items(), *self.envoy.scopes.items()):
            missing = {cluster for cluster in needs_of(digest) if not self.envoy.serves(cluster)}
            assert not missing or (name, digest) in self.exempt or self.silent, f"{name} names missing {missing}"

    def teardown(self):
        self.deliver_all()
        self.check_settled()
        good = {
            type_url: with_own(
                {name: encoded(item.digest.replace(INVALID, "4")) for name, item in resources.items()}, "a"
            )
            for type_url, resources in self.config.items()
        }
        self.set_config(good)
        self.deliver_all()
        wanted = {type_url: {name: item.digest for name, item in good.get(type_url, {}).items()} for type_url in ORDER}
        assert self.envoy.applied() == wanted

    def deliver_all(self):
        """Deliver all messages in a fair order until neither side sends more."""
        if not self.built:
            self.set_config(self.config)
        for _ in range(ENOUGH_STEPS):
            self.envoy.drain()
            senders = [type_url for type_url in ORDER if self.envoy.can_send(type_url)]
            if self.envoy.can_read() or senders:
                self.move(None if self.envoy.can_read() else senders[0])
            elif self.envoy.warming:
                assert self.is_interrupted, "a cluster stays warming for 15 seconds, because it gets no endpoints"
                self.envoy.warm_up()
            else:
                return
        raise AssertionError("the messages do not end")

    def check_settled(self):
        """Check that Envoy applies every resource that is valid and whose clusters are served."""
        applied = self.envoy.applied()
        for type_url in ORDER:
            for name, item in self.config.get(type_url, {}).items():
                asked = type_url not in NAMED or name in self.envoy.subscribed[type_url]
                blocked = any(not self.envoy.serves(cluster) or self.is_rejected(cluster) for cluster in item.needs)
                if asked and not is_invalid(item.digest) and not blocked:
                    assert applied[type_url].get(name) == item.digest, (type_url, name)
        assert self.envoy.listeners.keys() <= self.config.get(LISTENER, {}).keys()
        assert self.envoy.scopes.keys() <= self.config.get(SCOPES, {}).keys()

    def is_rejected(self, cluster):
        """Return whether the proxy rejected the wanted version of a cluster or of its endpoints."""
        return any(
            is_invalid(self.config[type_url][cluster].digest) and cluster not in self.envoy.versions[type_url]
            for type_url in (CLUSTER, ENDPOINTS)
        )


class TimeoutSchedule(Schedule):
    """A schedule with timeouts: make before break is not guaranteed, but the proxy still gets its configuration."""

    @rule(type_url=st.sampled_from(ORDER))
    def time_out(self, type_url):
        waiting = [nonce for nonce in self.unanswered[type_url] if nonce not in self.timed_out]
        if waiting:
            self.silent = True
            self.timed_out.add(waiting[0])
            self.session.time_out(waiting[0])
            self.push()

    def connect(self, *, late=False):
        self.timed_out = set()
        super().connect(late=late)

    def in_flight(self, type_url):
        return self.unanswered[type_url].keys() - self.timed_out


SETTINGS = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_a_proxy_gets_its_configuration_in_many_small_responses(monkeypatch):
    for module, limit in (
        (versions, "MAX_RESPONSE_BYTES"),
        (versions, "MAX_MIXED_BYTES"),
        (session, "MAX_RESPONSE_BYTES"),
    ):
        monkeypatch.setattr(module, limit, 1)
    run_state_machine_as_test(Schedule, settings=SETTINGS)


def test_every_schedule_keeps_routes_on_served_clusters_and_delivers_the_configuration():
    run_state_machine_as_test(Schedule, settings=SETTINGS)


def test_a_proxy_that_answers_too_late_gets_its_configuration():
    run_state_machine_as_test(TimeoutSchedule, settings=SETTINGS)
