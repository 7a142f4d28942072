"""The statuses of Gateways and ListenerSets: each is computed again only if what it depends on has changed."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headgate.compiler.gateway_api.gateways import GatewayState, ListenerPlan
from headgate.compiler.gateway_api.links import Place
from headgate.compiler.gateway_api.parents import Parents
from headgate.compiler.gateway_api.statuses import OutcomePlace, gateway_outcome, refused_outcome
from headgate.compiler.report import GatewayOutcome
from headgate.resources.meta import Key
from headgate.shared_map import replaced


class OutcomeInput(NamedTuple):
    """What the status of a Gateway or ListenerSet depends on: its plans, and the number of routes by listener.

    `ports` has the ports of its Gateway that proxies serve (`Listener.socket`), and `sets` the number of ListenerSets with a listener that is served;
    it is None for a ListenerSet.
    """

    gateway: Key
    state: GatewayState
    plans: tuple[ListenerPlan, ...]
    attached: tuple[int, ...]
    ports: frozenset[tuple[int, bool]]
    sets: int | None = None


class OutcomeInputs(NamedTuple):
    """The arguments of `outcome` for each Gateway and ListenerSet, and what they were made from.

    `served` has the ports of Gateways that proxies serve, by `namespace/name` and `Listener.socket`.
    """

    parents: Parents | None
    counts: Mapping[Place, int]
    served: frozenset[tuple[str, tuple[int, bool]]]
    inputs: Mapping[Key, tuple[Key, OutcomeInput]]


def outcome_inputs(
    last: OutcomeInputs, parents: Parents, counts: Mapping[Place, int], served: frozenset[tuple[str, tuple[int, bool]]]
) -> OutcomeInputs:
    """Return the arguments of `outcome`. If only `counts` differs from `last`, only the inputs with other numbers are new."""
    if last.parents is parents and last.served == served:
        changed, _ = replaced(last.counts, counts)
        renewed = dict(last.inputs)
        for key in {place[0] for place in changed}:
            if isinstance(key, Key) and key in renewed:
                renewed[key] = key, renewed[key][1]._replace(attached=_attached(parents, key, counts))
        return OutcomeInputs(parents, counts, served, renewed)
    by_gateway: dict[str, set[tuple[int, bool]]] = defaultdict(set)
    for name, port in served:
        by_gateway[name].add(port)
    inputs: dict[Key, tuple[Key, OutcomeInput]] = {}
    for gateway, state in parents.states.items():
        sets = parents.attached_sets[gateway]
        ports = frozenset(by_gateway[f"{gateway.namespace}/{gateway.name}"])
        accepted = sum(any(plan.served for plan in parents.plans[key]) for key in sets) if not state.refusals else 0
        for key in (gateway, *sets):
            number = accepted if key == gateway else None
            attached = _attached(parents, key, counts)
            inputs[key] = key, OutcomeInput(gateway, state, parents.plans[key], attached, ports, number)
    return OutcomeInputs(parents, counts, served, inputs)


def _attached(parents: Parents, key: Key, counts: Mapping[Place, int]) -> tuple[int, ...]:
    """Return the number of routes of each listener of a Gateway or ListenerSet."""
    return tuple(counts.get((key, plan.listener.name), 0) for plan in parents.plans[key])


def outcome(key: Key, source: OutcomeInput) -> GatewayOutcome:
    """Return the status of a Gateway or ListenerSet."""
    names = (plan.listener.name for plan in source.plans)
    return gateway_outcome(
        key,
        source.state,
        source.plans,
        attached=dict(zip(names, source.attached, strict=True)),
        place=OutcomePlace(source.gateway, source.ports, source.sets),
    )


def refused_outcomes(parents: Parents) -> Iterator[GatewayOutcome]:
    """Yield the status of each ListenerSet that its Gateway does not allow, or whose Gateway is missing or invalid.

    The controller of the latter is not known, so headgate only withdraws what such a ListenerSet's status promises.
    """
    for planned in parents.sets.values():
        if planned.refusal:
            yield refused_outcome(planned.refusal, withdraws=planned.gateway not in parents.states)
