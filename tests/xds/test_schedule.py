"""The session under adversarial schedules, against a proxy that behaves as Envoy was seen to behave.

The proxy answers late, refuses what is bad, applies the good part of what it refuses, keeps its answer about clusters
back while one is warming, hangs up, and comes back as the same process or as a new one.
"""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

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
from headgate.xds.session import Request, Session

BAD = "3"  # versions that begin so are refused
ENOUGH_STEPS = 300
NAMED = {ENDPOINTS, SECRET, ROUTES, RUNTIME, CHAIN}
LAYER = "t"  # of the runtime, which a proxy asks for as long as it lives
INLINE = "own"  # the scope that has its routes in it
TLS = "r"  # the listener that shows a certificate, which has its name


def is_bad(digest):
    return digest.startswith(BAD)


def needs_of(digest):
    return frozenset(digest.partition(":")[2])


VERSIONS = st.sampled_from(("1", "2", "1", "2", "1", "2", BAD))


@st.composite
def configs(draw, versions=VERSIONS):
    """Clusters a to c with endpoints, and the routes q and r, each with a listener and perhaps a scope; r has a secret.

    The scope `own` has its routes in it.
    """
    config = {type_url: {} for type_url in ORDER}
    config[RUNTIME][LAYER] = encoded(draw(versions))
    clusters = draw(st.sets(st.sampled_from("abc")))
    for name in sorted(clusters):
        for type_url in (CLUSTER, ENDPOINTS):
            config[type_url][name] = encoded(draw(versions))
    for name in sorted(draw(st.sets(st.sampled_from("qr")))):
        needs = draw(st.sets(st.sampled_from(sorted(clusters)))) if clusters else ()
        config[ROUTES][name] = encoded(f"{draw(versions)}:{''.join(sorted(needs))}")
        config[LISTENER][name] = encoded(draw(versions))
        if draw(st.booleans()):
            config[SCOPES][f"h-{name}"] = encoded(draw(versions))
        if name == TLS:
            config[SECRET][name] = encoded(draw(versions))
    if draw(st.booleans()):
        needs = draw(st.sets(st.sampled_from(sorted(clusters)))) if clusters else ()
        config[SCOPES][INLINE] = encoded(f"{draw(versions)}:{''.join(sorted(needs))}")
    own = draw(st.sets(st.sampled_from("abqrt")))
    return {type_url: parted(resources, own) for type_url, resources in config.items()}


def parted(resources, own):
    """Return resources of which some are the proxy's own."""
    common = {name: item for name, item in resources.items() if name not in own}
    return Resources(common, {name: item for name, item in resources.items() if name in own})


def as_before(config, before):
    """Return a configuration in which what is the same as before is the same object, as the encoder has it."""
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
    """The proxy: what it has in force, and what it wants to say on the stream."""

    def __init__(self):
        self.active, self.warming, self.endpoints = {}, {}, {}
        self.listeners, self.scopes, self.routes, self.secrets, self.runtime = {}, {}, {}, {}, {}
        self.versions = {type_url: {} for type_url in ORDER}  # what it would tell on the next stream
        self.follows = {type_url: set() for type_url in NAMED} | {RUNTIME: {LAYER}}
        self.hang_up()

    def hang_up(self):
        if not self.listeners:  # without a listener there are no scopes and no routes
            self.scopes.clear()
            self.versions[SCOPES].clear()
            for name in sorted(self.follows[ROUTES]):
                self.leave(ROUTES, name)
        self.inbox, self.opened = [], set()
        self.first = {type_url for type_url in ORDER if type_url not in NAMED or self.follows[type_url]}
        self.answers = defaultdict(list)
        self.asks, self.leaves = defaultdict(set), defaultdict(set)

    def in_force(self):
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

    def in_doubt(self):
        """Say whether a refused response was applied in part: then the versions that Envoy tells are not the true ones."""
        return self.in_force() != self.versions

    def serves(self, cluster):
        return cluster in self.active and cluster in self.endpoints

    def follow(self, type_url, name):
        if name not in self.follows[type_url]:
            self.follows[type_url].add(name)
            self.leaves[type_url].discard(name)
            self.asks[type_url].add(name)

    def leave(self, type_url, name):
        if name in self.follows[type_url]:
            self.follows[type_url].discard(name)
            self.asks[type_url].discard(name)
            self.leaves[type_url].add(name)
            self.in_force()[type_url].pop(name, None)
            self.versions[type_url].pop(name, None)

    def may_listen(self):
        """Say whether a response may be read: a new stream begins with what Envoy wants from it."""
        return self.inbox and not any(self.may_speak(type_url) for type_url in self.first - self.opened)

    def may_speak(self, type_url):
        if type_url == CLUSTER and self.warming:
            return False
        if type_url not in self.opened:
            return type_url not in NAMED or bool(self.follows[type_url])
        return bool(self.answers[type_url] or self.asks[type_url] or self.leaves[type_url])

    def speak(self, type_url):
        """Return the next request of a type: an answer and changed subscriptions share one message."""
        asks, leaves = self.asks.pop(type_url, set()), self.leaves.pop(type_url, set())
        if type_url not in self.opened:
            self.opened.add(type_url)
            subscribe = tuple(sorted(self.follows.get(type_url, ())))
            return Request(type_url, subscribe, (), dict(self.versions[type_url]))
        nonce, error = self.answers[type_url].pop(0) if self.answers[type_url] else ("", None)
        return Request(type_url, tuple(sorted(asks)), tuple(sorted(leaves)), {}, nonce, error)

    def take(self, response):
        apply = {
            CLUSTER: self.take_clusters,
            ENDPOINTS: self.take_endpoints,
            SECRET: self.take_secrets,
            RUNTIME: self.take_runtime,
            LISTENER: self.take_listeners,
            ROUTES: self.take_routes,
            SCOPES: self.take_scopes,
        }
        bad = any(is_bad(item.digest) for _, item in response.resources)
        apply[response.type_url](response)
        self.answers[response.type_url].append((response.nonce, "bad" if bad else None))
        if not bad:
            told = self.versions[response.type_url]
            for name, item in response.resources:
                if response.type_url not in NAMED or name in self.follows[response.type_url]:
                    told[name] = item.digest
            for name in response.removed:
                told.pop(name, None)

    def take_clusters(self, response):
        for name, item in response.resources:
            if not is_bad(item.digest) and self.warming.get(name, self.active.get(name)) != item.digest:
                self.warming[name] = item.digest
                self.follow(ENDPOINTS, name)
        for name in response.removed:
            self.active.pop(name, None)
            self.warming.pop(name, None)
            self.leave(ENDPOINTS, name)

    def take_endpoints(self, response):
        for name in response.removed:  # "there are none" ends the waiting too
            if name in self.warming:
                self.active[name] = self.warming.pop(name)
        for name, item in response.resources:
            if is_bad(item.digest):
                self.warm_up()  # one refusal ends the waiting of them all
                return
            if name in self.follows[ENDPOINTS]:
                self.endpoints[name] = item.digest
                if name in self.warming:
                    self.active[name] = self.warming.pop(name)

    def warm_up(self):
        self.active |= self.warming
        self.warming.clear()

    def take_listeners(self, response):
        for name, item in response.resources:
            if not is_bad(item.digest):
                self.listeners[name] = item.digest
                self.follow(ROUTES, name)
                if name == TLS:
                    self.follow(SECRET, name)
        for name in response.removed:
            self.listeners.pop(name, None)

    def take_scopes(self, response):
        if any(is_bad(item.digest) for _, item in response.resources):
            return  # all or nothing
        for name, item in response.resources:
            self.scopes[name] = item.digest
            if name != INLINE:
                self.follow(ROUTES, name.removeprefix("h-"))
        for name in response.removed:
            self.scopes.pop(name, None)

    def take_secrets(self, response):
        for name, item in response.resources:
            if is_bad(item.digest):
                return
            if name in self.follows[SECRET]:
                self.secrets[name] = item.digest

    def take_runtime(self, response):
        for name, item in response.resources:
            if not is_bad(item.digest):
                self.runtime[name] = item.digest

    def take_routes(self, response):
        for name, item in response.resources:
            if is_bad(item.digest):
                return
            if name in self.follows[ROUTES]:
                self.routes[name] = item.digest

    def drain(self):
        """Let go of the routes that no listener and no scope uses any more."""
        used = self.listeners.keys() | {name.removeprefix("h-") for name in self.scopes}
        for name in sorted(self.follows[ROUTES] - used):
            self.leave(ROUTES, name)
        if TLS not in self.listeners:
            self.leave(SECRET, TLS)


class Schedule(RuleBasedStateMachine):
    """One proxy and one server; every rule is something that may happen next."""

    def __init__(self):
        super().__init__()
        self.envoy = Envoy()
        self.config = {}
        self.excused = set()  # routes that may name a refused cluster: the proxy had nothing instead
        self.cut_off = False
        self.silent = False  # an answer was overdue: order is no longer promised
        self.connect()

    def connect(self, *, late=False):
        self.session = Session()
        self.built = not late  # a server that has just started hears its proxies before it has anything for them
        if self.built:
            self.session.offer(self.config)
        self.unanswered = defaultdict(dict)
        self.sent = {}  # the version that was last sent, until there is a cause to send it again
        self.due = set()  # endpoints that follow their cluster

    @rule(config=configs())
    def change(self, config):
        self.offer(config)

    def offer(self, config):
        self.config = config = as_before(config, self.config)
        self.built = True
        self.session.offer(config)
        self.push()

    @rule(choices=st.lists(st.integers(0, len(ORDER)), min_size=1, max_size=12))
    def go_on(self, choices):
        """Let messages move, each time the first that can from one of six places: the proxy's inbox, or a type."""
        for choice in choices:
            places = [*ORDER[choice:], None, *ORDER[:choice]]
            self.move(next((place for place in places if self.can_move(place)), None))

    def can_move(self, place):
        return self.envoy.may_listen() if place is None else self.envoy.may_speak(place)

    def move(self, place):
        if place is not None:
            self.hear(self.envoy.speak(place))
        elif self.envoy.may_listen():
            self.envoy.take(self.envoy.inbox.pop(0))
            self.check_traffic()

    @rule()
    def rest(self):
        self.settle()
        self.check_settled()

    @rule()
    def drain(self):
        self.envoy.drain()

    @rule(restarted=st.booleans(), late=st.booleans())
    def reconnect(self, restarted, late):
        if restarted or self.envoy.in_doubt():
            self.envoy = Envoy()
            self.excused.clear()
        self.cut_off = bool(self.envoy.warming)  # the endpoints that it waits for may have been on their way
        self.envoy.hang_up()
        self.connect(late=late)

    def hear(self, request):
        self.note_causes(request)
        self.unanswered[request.type_url].pop(request.nonce, None)
        for rejected in self.session.receive(request):
            assert is_bad(rejected.digest), rejected
        self.push()

    def note_causes(self, request):
        """Remember what a resource may be sent again for: a new subscription, or the refusal of several at once."""
        type_url = request.type_url
        for name, digest in request.initial.items():
            if (type_url, name) not in self.due:
                self.sent[type_url, name] = digest
        again = set(request.subscribe) - set(request.initial)
        response = self.unanswered[type_url].get(request.nonce)
        if response and request.error is not None and len(response.resources) > 1:
            again |= {name for name, _ in response.resources}
        for name in again:
            self.sent.pop((type_url, name), None)

    def push(self):
        for response in self.session.advance() if self.built else ():
            self.check_sent(response)
            self.unanswered[response.type_url][response.nonce] = response
            self.envoy.inbox.append(response)
        self.check_memory()

    def check_memory(self):
        """Nothing is remembered of a name that is gone: names come and go for years."""
        for type_url, shelf in self.session.shelves.items():
            flying = {name for sent in shelf.flying.values() for name in (*dict(sent.resources), *sent.removed)}
            there = shelf.known.keys() | shelf.held.keys() | shelf.subscribed | flying
            for memory in (shelf.lapsed, shelf.doubtful, shelf.rejected):
                assert set(memory) <= there
            wanted = self.config.get(type_url, {}).keys()
            for layer in (shelf.known, shelf.held):
                assert layer.exceptions.keys() <= there | wanted | layer.base.keys()
        clusters, endpoints = self.session.shelves[CLUSTER], self.session.shelves[ENDPOINTS]
        assert endpoints.again.keys() <= clusters.known.keys() | endpoints.subscribed

    def check_sent(self, response):
        type_url = response.type_url
        assert not self.waited_for(type_url), "two responses of a type wait for their answers"
        for name, item in response.resources:
            assert self.sent.get((type_url, name)) != item.digest, f"{name} is sent twice without a cause"
            self.sent[type_url, name] = item.digest
            if type_url == CLUSTER:
                self.sent.pop((ENDPOINTS, name), None)
                self.due.add((ENDPOINTS, name))
            self.check_needs(name, item)
        for name in response.removed:
            self.sent.pop((type_url, name), None)

    def check_needs(self, name, item):
        missing = {cluster for cluster in item.needs if not self.envoy.serves(cluster)}
        if not missing or self.silent:
            return
        refused = {
            cluster
            for cluster in missing
            if is_bad(self.config[CLUSTER][cluster].digest) or is_bad(self.config[ENDPOINTS][cluster].digest)
        }
        assert missing == refused, f"the route {name} is sent before its clusters {missing - refused}"
        self.excused.add((name, item.digest))

    def waited_for(self, type_url):
        return self.unanswered[type_url]

    def check_traffic(self):
        for name, digest in (*self.envoy.routes.items(), *self.envoy.scopes.items()):
            missing = {cluster for cluster in needs_of(digest) if not self.envoy.serves(cluster)}
            assert not missing or (name, digest) in self.excused or self.silent, f"{name} names missing {missing}"

    def teardown(self):
        self.settle()
        self.check_settled()
        good = {
            type_url: parted({name: encoded(item.digest.replace(BAD, "4")) for name, item in resources.items()}, "a")
            for type_url, resources in self.config.items()
        }
        self.offer(good)
        self.settle()
        wanted = {type_url: {name: item.digest for name, item in good.get(type_url, {}).items()} for type_url in ORDER}
        assert self.envoy.in_force() == wanted

    def settle(self):
        """Deliver everything, fairly, until nobody has anything to say."""
        if not self.built:
            self.offer(self.config)
        for _ in range(ENOUGH_STEPS):
            self.envoy.drain()
            speakers = [type_url for type_url in ORDER if self.envoy.may_speak(type_url)]
            if self.envoy.may_listen() or speakers:
                self.move(None if self.envoy.may_listen() else speakers[0])
            elif self.envoy.warming:
                assert self.cut_off, "a cluster waits for its endpoints for 15 seconds"
                self.envoy.warm_up()
            else:
                return
        raise AssertionError("still talking")

    def check_settled(self):
        """All that can be in force is; what is refused, or waits for it, is as it was."""
        force = self.envoy.in_force()
        for type_url in ORDER:
            for name, item in self.config.get(type_url, {}).items():
                asked = type_url not in NAMED or name in self.envoy.follows[type_url]
                blocked = any(not self.envoy.serves(cluster) or self.is_refused(cluster) for cluster in item.needs)
                if asked and not is_bad(item.digest) and not blocked:
                    assert force[type_url].get(name) == item.digest, (type_url, name)
        assert self.envoy.listeners.keys() <= self.config.get(LISTENER, {}).keys()
        assert self.envoy.scopes.keys() <= self.config.get(SCOPES, {}).keys()

    def is_refused(self, cluster):
        """Say whether the proxy refused a cluster as it is wanted; what it took from a refused response nobody knows."""
        return any(
            is_bad(self.config[type_url][cluster].digest) and cluster not in self.envoy.versions[type_url]
            for type_url in (CLUSTER, ENDPOINTS)
        )


class Deaf(Schedule):
    """The same, with answers that are overdue: order is given up then, but never the goal."""

    @rule(type_url=st.sampled_from(ORDER))
    def lapse(self, type_url):
        waiting = [nonce for nonce in self.unanswered[type_url] if nonce not in self.overdue]
        if waiting:
            self.silent = True
            self.overdue.add(waiting[0])
            self.session.lapse(waiting[0])
            self.push()

    def connect(self, *, late=False):
        self.overdue = set()
        super().connect(late=late)

    def waited_for(self, type_url):
        return self.unanswered[type_url].keys() - self.overdue


SETTINGS = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_what_takes_several_responses_reaches_the_goal_too(monkeypatch):
    for module, limit in ((versions, "LARGEST"), (versions, "SMALL"), (session, "LARGEST")):
        monkeypatch.setattr(module, limit, 1)
    run_state_machine_as_test(Schedule, settings=SETTINGS)


def test_whatever_is_delivered_refused_or_reconnected_no_route_goes_astray_and_the_goal_is_reached():
    run_state_machine_as_test(Schedule, settings=SETTINGS)


def test_a_proxy_that_answers_too_late_reaches_the_goal_too():
    run_state_machine_as_test(Deaf, settings=SETTINGS)
