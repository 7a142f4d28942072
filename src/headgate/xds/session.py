"""One delta ADS stream, as a pure state machine from requests and configurations to responses.

The rules:
- A version that the proxy has acknowledged is not sent again. A rejected version is not sent again either, except for a
  listener whose address was in use: the resource is valid, so it is retried (`retry_listeners`).
- Make before break: a route is sent when the proxy has acknowledged every cluster that it names, with endpoints. A cluster
  is removed when no route that the proxy may have has named it for `removal_delay` seconds: a request that began before
  may still be repeated, and Envoy answers 503 if its cluster is gone. After a reconnect the reported versions count as
  acknowledged, and nothing is removed before the proxy has reported its routes.
- Scopes contain the routes of listeners that may already serve, so listeners wait for all scopes that the proxy does not
  have. A listener becomes active with the first response of scopes, so that response is complete, whatever its size.
- A cluster that is sent again is followed by its endpoints: without them Envoy keeps it warming for 15 seconds.
- One response of a type is in flight at a time. After `time_out` the next one is sent without an answer.
- After a NACK of several resources they are sent one by one, so that the NACK of a single one names the invalid resource.
- A proxy that reconnects and reports exactly the wanted versions gets no response. If it does not request a wanted type, an
  empty response of clusters shows that its report is complete (`confirm_report`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from headgate.envoy.config import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    NO_RESOURCES,
    ORDER,
    ROUTES,
    SCOPES,
    Encoded,
    ProxyConfig,
    Resources,
    TypeUrl,
)
from headgate.xds.messages import DeltaRequest
from headgate.xds.subscription import Pending, Rejection, Response, Subscription
from headgate.xds.versions import (
    MAX_RESPONSE_BYTES,
    ById,
    Pairs,
    missing_names,
    needed_clusters,
    without_bodies,
)

WILDCARD = {CLUSTER, LISTENER, SCOPES}  # types that a proxy may subscribe to with a wildcard
MAX_TIMED_OUT = 16  # timed-out responses of a type that are kept in case of a late answer
ADDRESS_IN_USE = "cannot bind"  # part of Envoy's NACK when a listener's address is in use


class Session:
    """The state of one stream. After `set_config`, `receive` or `time_out`, send what `next_responses` returns.

    `config` is the wanted configuration; `change_count` grows with each change to the state. `clock` returns
    seconds, and is only read for `removal_delay`.
    """

    def __init__(self, removal_delay: float = 0.0, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.config: ProxyConfig = {}
        self.change_count = 0
        self.subscriptions = {type_url: Subscription(starts_whole=type_url == SCOPES) for type_url in ORDER}
        self._wanted: dict[TypeUrl, Resources] = dict.fromkeys(ORDER, NO_RESOURCES)
        self._count = 0
        self._is_report_complete = False
        self._removal_delay, self._clock = removal_delay, clock
        self._unused: dict[str, float] = {}  # when each cluster to remove may be removed

    def set_config(self, config: ProxyConfig) -> None:
        """Replace the wanted configuration."""
        self.config = config
        self.change_count += 1
        for type_url, subscription in self.subscriptions.items():
            resources, last = config.get(type_url, NO_RESOURCES), self._wanted[type_url]
            if resources is last or (last.common is resources and not last.own):
                continue
            if not isinstance(resources, Resources):
                resources = Resources(resources, {})
            self._wanted[type_url] = resources
            if subscription.initial_names:
                subscription.match_reported_versions(resources)
        self._check_report()

    def receive(self, request: DeltaRequest) -> tuple[Rejection, ...]:
        """Process a discovery request: subscriptions, and an ACK or NACK. Return the new rejections of resources."""
        subscription = self.subscriptions.get(request.type_url)
        if subscription is None:
            return ()
        self.change_count += 1
        subscription.mark_changed()
        if request.subscribe or request.unsubscribe or request.initial or not subscription.has_requested:
            self._subscribe(subscription, request)
            self._check_report()
        response = subscription.in_flight.pop(request.nonce, None)
        subscription.timed_out_nonces.discard(request.nonce)
        if response is None:
            return ()
        self._is_report_complete |= request.type_url == CLUSTER
        if request.error is not None:
            return tuple(subscription.record_nack(response, request.error))
        subscription.record_ack(response)
        if request.type_url == ENDPOINTS:  # endpoints that an ACK subscribes to are sent again; routes are not
            for name in request.subscribe:
                subscription.acknowledged.discard(name)
        return ()

    def next_responses(self) -> list[Response]:
        """Return the responses that may be sent now, in the order in which they must be sent."""
        responses = []
        for type_url, subscription in self.subscriptions.items():
            config = self._wanted[type_url]
            if (
                subscription.sent_config is not config
                and not subscription.awaits_answer
                and not (type_url == LISTENER and self._lacks_scopes())
                and (response := self._next_response(type_url, subscription, config))
            ):
                responses.append(response)
        self.change_count += len(responses)
        return responses

    def time_out(self, nonce: str) -> None:
        """Stop waiting for the answer to a response, so that the next is sent. A late answer still counts."""
        self.change_count += 1
        for subscription in self.subscriptions.values():
            if response := subscription.in_flight.get(nonce):
                subscription.mark_changed()
                self._is_report_complete |= response.type_url == CLUSTER
                bodiless = without_bodies(ById(response.resources))
                subscription.in_flight[nonce] = response._replace(resources=bodiless, transition=None)
                subscription.timed_out_nonces.add(nonce)
                subscription.timed_out.update(name for name, _ in response.resources)
                for name in subscription.uncertain.keys() & response.removed:
                    if name not in subscription.sent:
                        del subscription.uncertain[name]
                if len(subscription.timed_out_nonces) > MAX_TIMED_OUT:
                    oldest = next(nonce for nonce in subscription.in_flight if nonce in subscription.timed_out_nonces)
                    subscription.mark_uncertain(subscription.in_flight.pop(oldest))
                    subscription.timed_out_nonces.discard(oldest)

    @property
    def next_removal(self) -> float | None:
        """When `check_removals` has something to do, by the clock; None if no removal waits."""
        return min(self._unused.values(), default=None)

    def check_removals(self) -> None:
        """Let `next_responses` remove the clusters whose delay is over."""
        self.change_count += 1
        self.subscriptions[CLUSTER].mark_changed()

    @property
    def has_reported_all(self) -> bool:
        """Whether the proxy has reported, after a reconnect, all resources that it holds.

        It may hold resources that it has not reported. Envoy reports type by type, clusters first. The report is complete
        when it has the types of all wanted resources. Envoy sends no ACK before it has reported every type, so the first ACK
        of clusters shows that the report is complete too. After a timeout of its response, nothing waits for the report any more.
        """
        clusters = self.subscriptions[CLUSTER]
        return self._is_report_complete and not clusters.must_respond and not clusters.awaits_answer

    def confirm_report(self) -> bool:
        """Request an ACK of clusters if it is unknown whether the report is complete; return whether it is requested.

        A proxy without TLS holds no secrets, for example, so it never requests them.
        """
        clusters = self.subscriptions[CLUSTER]
        if self._is_report_complete or not clusters.wildcard or clusters.must_respond or clusters.awaits_answer:
            return False
        self.change_count += 1
        clusters.must_respond = True
        clusters.mark_changed()
        return True

    @property
    def exceeds_limits(self) -> bool:
        """Whether the state has grown too large: the proxy never answers, or subscribes to more and more names.

        The caller should end the stream. The proxy reconnects and reports what it has.
        """
        return any(
            subscription.exceeds_limits(len(self._wanted[type_url]))
            for type_url, subscription in self.subscriptions.items()
        )

    @property
    def awaits_answer(self) -> bool:
        """Whether a response waits for its ACK or NACK and has not timed out."""
        return any(subscription.awaits_answer for subscription in self.subscriptions.values())

    def unacknowledged(self) -> Iterator[tuple[TypeUrl, str]]:
        """Yield the subscribed resources whose wanted version the proxy has not acknowledged."""
        for type_url, subscription in self.subscriptions.items():
            for name in subscription.unacknowledged(self._wanted[type_url]):
                yield type_url, name

    def out_of_sync(self, limit: int) -> set[tuple[TypeUrl, str]]:
        """Return the resources whose acknowledged version differs from the wanted one, and those that are rejected.

        The search stops at `limit` + 1 resources. Endpoints to which the proxy has not subscribed are included, since
        it subscribes to the endpoints of every cluster.
        """
        resources: set[tuple[TypeUrl, str]] = set()
        for type_url, subscription in self.subscriptions.items():
            target, acknowledged = self._wanted[type_url], subscription.acknowledged
            if acknowledged.base is target and not acknowledged.overrides and not subscription.rejected:
                continue
            names = subscription.out_of_sync(target, unsubscribed=type_url == ENDPOINTS)
            if type_url in (CLUSTER, ENDPOINTS) and self._unused:
                names = (name for name in names if name not in self._unused)
            resources.update((type_url, name) for name in islice(names, limit + 1 - len(resources)))
            if len(resources) > limit:
                break
        return resources

    def retry_listeners(self) -> bool:
        """Send again the listeners whose address was in use; return whether there are any."""
        subscription = self.subscriptions[LISTENER]
        failed = {
            name: None for name, rejection in subscription.rejected.items() if ADDRESS_IN_USE in rejection.message
        }
        if failed:
            self.change_count += 1
            subscription.mark_changed()
            subscription.one_by_one |= failed
        return bool(failed)

    def _subscribe(self, subscription: Subscription, request: DeltaRequest) -> None:
        is_first = not subscription.wildcard and not subscription.subscribed
        names = frozenset(request.subscribe)
        is_wildcard = "*" in names or (is_first and not names)
        if "*" in names:
            names -= {"*"}
        if is_wildcard and request.type_url in WILDCARD and not subscription.wildcard:
            subscription.wildcard = True
            subscription.must_respond = not request.initial
        subscription.has_requested = True
        if request.initial:
            subscription.record_initial_versions(request.initial, names, self._wanted[request.type_url])
        elif names:
            subscription.subscribe(names)
        if request.unsubscribe:
            subscription.unsubscribe(request.unsubscribe)

    def _check_report(self) -> None:
        """Record that the report is complete if the proxy has requested listeners and the types of all wanted resources."""
        needed = (self.subscriptions[type_url] for type_url, resources in self._wanted.items() if resources)
        self._is_report_complete |= (
            bool(self.config)
            and self.subscriptions[LISTENER].has_requested
            and self.subscriptions[CLUSTER].wildcard
            and all(subscription.has_requested for subscription in needed)
        )

    def _lacks_scopes(self) -> bool:
        """Return whether the proxy subscribes to scopes, and some were never sent."""
        scopes, config = self.subscriptions[SCOPES], self._wanted[SCOPES]
        return scopes.has_requested and any(name not in scopes.sent for name, _ in scopes.unsent(config))

    def _next_response(self, type_url: TypeUrl, subscription: Subscription, config: Resources) -> Response | None:
        if subscription.one_by_one:
            subscription.prune_one_by_one(config)
        pending = subscription.pending(config)
        resources = self._sendable(subscription, config, pending)
        removed = (*self._removable(type_url, pending.removed), *subscription.nonexistent(config))
        if subscription.is_starting_whole and len(resources) < len(pending.resources):
            return None
        if not resources and not removed and not subscription.must_respond:
            if not pending.resources and not pending.removed and not subscription.one_by_one:
                subscription.rebase(config)
                subscription.sent_config = config
            return None
        if resources:
            subscription.one_by_one.pop(resources[0][0], None)
        subscription.must_respond = False
        self._count += 1
        response = Response(type_url, str(self._count), resources, removed)
        if type_url == CLUSTER:
            self._update_endpoints_to_resend(subscription, response)
        subscription.record_sent(response, config)
        return response

    def _update_endpoints_to_resend(self, clusters: Subscription, response: Response) -> None:
        for name, _ in response.resources if not clusters.sent.is_unused else ():
            if name in clusters.sent:
                self._resend_endpoints(name)
        for name in response.removed:
            self.subscriptions[ENDPOINTS].resend.pop(name, None)

    def _resend_endpoints(self, cluster: str) -> None:
        """Schedule the endpoints of a cluster to be sent again, even if the proxy has not subscribed to them yet."""
        if endpoints := self._wanted[ENDPOINTS].get(cluster):
            self.subscriptions[ENDPOINTS].resend[cluster] = endpoints
            self.subscriptions[ENDPOINTS].mark_changed()

    def _sendable(self, subscription: Subscription, config: Resources, pending: Pending) -> Pairs:
        """Return the pending resources that may be sent now; a shared batch unchanged, if it may be sent whole."""
        if pending.is_batch and self._may_send_all(pending.resources):
            return pending.resources
        # Not all of the batch can be sent. A resource that waits for its cluster must not delay a resource whose cluster is ready.
        unsent = subscription.unsent(config) if pending.is_batch else pending.resources
        return tuple(self._select(subscription, config, unsent))

    def _select(
        self, subscription: Subscription, config: Mapping[str, Encoded], unsent: Pairs
    ) -> Iterator[tuple[str, Encoded]]:
        for name in subscription.one_by_one:
            if self._may_send(subscription, name, config[name]):
                yield name, config[name]
                return
        size, is_whole = 0, subscription.is_starting_whole
        for name, encoded in unsent:
            if name in subscription.one_by_one or not self._may_send(subscription, name, encoded):
                continue
            size += len(encoded.body)
            if size > MAX_RESPONSE_BYTES and size > len(encoded.body) and not is_whole:
                return
            yield name, encoded

    def _may_send_all(self, resources: Pairs) -> bool:
        """Return whether every cluster that any of the resources names is ready."""
        clusters, endpoints = self.subscriptions[CLUSTER], self.subscriptions[ENDPOINTS]
        needs = needed_clusters(ById(resources))
        if not needs:
            return True
        without_endpoints = missing_names(ById(needs), ById(endpoints.acknowledged.base.common))
        to_check = {name for name in without_endpoints if name in self._wanted[ENDPOINTS]}
        for overlay in (clusters.sent, clusters.acknowledged):
            to_check |= missing_names(ById(needs), ById(overlay.base.common))
        for overlay in (clusters.sent, clusters.acknowledged, endpoints.acknowledged):
            to_check |= needs & overlay.overrides.keys() if overlay.overrides else frozenset()
        return all(self._is_ready(name) for name in to_check)

    def _may_send(self, subscription: Subscription, name: str, encoded: Encoded) -> bool:
        """Return whether every cluster that the resource names is ready.

        A rejected cluster does not delay a resource that the proxy does not have yet: it would be delayed forever.
        """
        for cluster in encoded.needs:
            if self._is_rejected(cluster):
                if name in subscription.acknowledged and name in subscription.sent:
                    return False  # the proxy continues to use the version that it has
            elif not self._is_ready(cluster):
                return False
        return True

    def _is_rejected(self, cluster: str) -> bool:
        """Return whether the proxy rejected the wanted cluster, or its endpoints, and has no other version of it."""
        for type_url in (CLUSTER, ENDPOINTS):
            subscription, target = self.subscriptions[type_url], self._wanted[type_url]
            rejection = subscription.rejected.get(cluster)
            if rejection and cluster not in subscription.acknowledged and cluster in target:
                return rejection.digest == target[cluster].digest
        return False

    def _is_ready(self, cluster: str) -> bool:
        """Return whether the proxy has acknowledged the cluster and its endpoints, or did not answer in time."""
        clusters, endpoints = self.subscriptions[CLUSTER], self.subscriptions[ENDPOINTS]
        if not clusters.sent.get(cluster):
            return False
        if cluster not in clusters.acknowledged and cluster not in clusters.timed_out:
            return False
        if cluster not in self._wanted[ENDPOINTS]:
            return True
        return cluster in endpoints.acknowledged or cluster in endpoints.timed_out

    def _removable(self, type_url: TypeUrl, removed: Sequence[str]) -> Sequence[str]:
        """Return the names that may be removed now. A cluster must not be removed while the proxy may use it."""
        if type_url != CLUSTER:
            return removed
        if not removed:
            self._unused.clear()
            return ()
        clusters, listeners = self.subscriptions[CLUSTER], self.subscriptions[LISTENER]
        routing = {type_url: self.subscriptions[type_url] for type_url in (ROUTES, SCOPES)}
        silent = [type_url for type_url, subscription in routing.items() if not subscription.has_requested]
        is_unreported = not listeners.has_requested or (
            any(self._wanted[type_url] for type_url in silent)
            and listeners.initial_names & listeners.acknowledged.keys()
        )
        users = (listeners, *routing.values())
        if (clusters.initial_names and silent and is_unreported) or any(
            subscription.may_use_unknown_clusters for subscription in users
        ):
            return ()
        now, before = self._clock(), self._unused
        self._unused = {
            name: before.get(name, now + self._removal_delay)
            for name in removed
            if not any(subscription.may_use(name) for subscription in users)
        }
        return [name for name, end in self._unused.items() if end <= now]
