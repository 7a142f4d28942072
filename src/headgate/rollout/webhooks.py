"""Calls the webhooks of rollouts: programs of the user that let a rollout begin and go on, or that learn its end (R108).

A webhook is a Service in the Canary's own namespace, so a Canary can't make the control plane call anything else. The
status of its response is the answer: 2xx is yes, 4xx is no, and every other response is retried.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aiohttp import ClientError, ClientSession, ClientTimeout

from headgate.compiler.snapshot import Snapshot
from headgate.http_failures import describe
from headgate.latest import Latest
from headgate.model.authorities import url_host
from headgate.resources.mesh.canary.analysis import Webhook, When
from headgate.resources.meta import Key
from headgate.rollout.state import Pause, Phase, State, WebhookAnswer

TIMEOUT_S = 10.0
AGAIN_S = 10.0
"""Seconds until a webhook that has not answered yes or no is called again."""


class Occasion(NamedTuple):
    """What a webhook is called about: the time in a step, or the end. Answers about an earlier occasion do not count."""

    begun_by: str
    step: int
    time: Phase | When | None


class _Call(NamedTuple):
    occasion: Occasion
    due: float
    answer: WebhookAnswer | None = None


class Webhooks:
    """Calls webhooks in tasks of their own, and keeps the last answer of each. `clock` is in seconds."""

    def __init__(self, snapshot: Latest[Snapshot | None], clock: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._calls: dict[tuple[Key, str], _Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def answers(self, key: Key, occasion: Occasion) -> Mapping[str, WebhookAnswer]:
        """Return the answers of a Canary's webhooks about an occasion, by the name of the webhook."""
        return {
            name: call.answer
            for (canary, name), call in self._calls.items()
            if canary == key and call.occasion == occasion and call.answer
        }

    def call(self, key: Key, hook: Webhook, occasion: Occasion, body: Mapping[str, Any], every_s: float) -> None:
        """Call a webhook in the background if that is due: first now, then every `every_s` seconds."""
        call, now = self._calls.get((key, hook.name)), self._clock()
        if call and call.occasion == occasion and now < call.due:
            return
        last = call.answer if call and call.occasion == occasion else None
        self._calls[key, hook.name] = _Call(occasion, now + TIMEOUT_S + AGAIN_S, last)
        task = asyncio.create_task(
            self._agreement(key, hook, occasion, body, every_s), name=f"webhook {hook.name} of {key}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, key: Key) -> None:
        """Drop the answers of a deleted Canary."""
        self._calls = {called: call for called, call in self._calls.items() if called[0] != key}

    async def close(self) -> None:
        """Cancel the calls in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _agreement(
        self, key: Key, hook: Webhook, occasion: Occasion, body: Mapping[str, Any], every_s: float
    ) -> None:
        answer = await self._response(key.namespace, hook, body)
        current = self._calls.get((key, hook.name))
        if current and current.occasion == occasion:
            pause = AGAIN_S if answer.agrees is None else every_s
            self._calls[key, hook.name] = _Call(occasion, self._clock() + pause, answer)

    async def _response(self, namespace: str, hook: Webhook, body: Mapping[str, Any]) -> WebhookAnswer:
        snapshot = self._snapshot.get()
        _, service = snapshot.services.get(f"{namespace}/{hook.service}", (None, None)) if snapshot else (None, None)
        if service is None or service.spec.cluster_ip in {"", "None"}:
            return WebhookAnswer(None, f"Service {namespace}/{hook.service} does not exist, or has no address")
        path = hook.path.removeprefix("/")  # a path without a slash would change the host
        url = f"http://{url_host(service.spec.cluster_ip)}:{hook.port}/{path}"
        headers = {"Host": f"{hook.service}.{namespace}:{hook.port}"}
        try:
            async with (
                ClientSession(timeout=ClientTimeout(TIMEOUT_S)) as session,
                session.post(url, json=body, headers=headers, allow_redirects=False) as response,
            ):
                status = response.status
        except (OSError, ClientError, TimeoutError) as error:
            return WebhookAnswer(None, f"no response: {describe(error)}")
        agrees = {2: True, 4: False}.get(status // 100)
        return WebhookAnswer(agrees, f"status {status}")


def occasion_of(state: State) -> Occasion:
    """Return what webhooks are called about in a state."""
    return Occasion(state.begun_by, state.step, state.phase if state.phase.is_over else when_called(state))


def when_called(state: State) -> When | None:
    """Return which webhooks a state calls; None while it calls none."""
    if state.phase.is_over:
        return When.AFTER
    return When.BEFORE if state.pause is Pause.BEFORE else When.DURING if state.is_counting else None
