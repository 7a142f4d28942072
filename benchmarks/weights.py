"""How fast and how exactly a change of weights works, from the mesh model to the answers.

usage: weights.py [--flips 50] [--runs 200]

- Flips 100/0 and 0/100 under load: time from the change to the first answer of the new side, and to the sending of the
  last request that the old side still answers; failures; resources encoded and bytes sent for a change.
- Runs of 100 requests at 90/10: how far the observed share is from the wanted one, beside an independent random pick.
Aims: p99 under 50 ms, one resource for a change, no failure.
"""

import argparse
import asyncio
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import uvloop

from headgate.envoy.config import ENDPOINTS
from lab import Gateway, free_port, start_gateway, website
from load import Answered, Backend, Client, connect

NAMES = ("v0", "v1")
CONNECTIONS = 8
SETTLED_S = 0.1
"""Load goes on this long after a change, several times longer than a change takes."""
RUN = 100
SHARE = 0.1


class Flip(NamedTuple):
    """One change, in milliseconds after it was made; `sent` is the size of what the proxy was sent."""

    first_new: float
    last_old: float
    encoded: int
    sent: int


async def flip(gateway: Gateway, clients: Sequence[Client], backends: Sequence[int], new: int) -> Flip:
    """Move all traffic to backend number `new` while the clients go on."""
    for client in clients:
        client.seen.clear()
    encoded = gateway.memo.encoded
    changed = time.perf_counter()
    gateway.apply(website(gateway.port, backends, [100 * (number == new) for number in range(len(backends))]))
    await asyncio.sleep(SETTLED_S)
    seen = [answer for client in clients for answer in client.seen]
    mine = [answer for answer in seen if answer.name == NAMES[new]]
    if not mine:
        raise SystemExit(f"no answer of {NAMES[new]} within {SETTLED_S} s of the change")
    config = gateway.proxy.config.get() or {}
    sent = sum(len(resource.body) for resource in config[ENDPOINTS].values())
    first = min(answer.answered for answer in mine)
    last = max((answer.sent for answer in seen if answer.name != NAMES[new]), default=changed)
    return Flip((first - changed) * 1000, (last - changed) * 1000, gateway.memo.encoded - encoded, sent)


async def flips(gateway: Gateway, backends: Sequence[int], count: int) -> None:
    """Change the weights `count` times under load, and print what happened."""
    going = True
    clients = await connect(gateway.port, CONNECTIONS, lambda: going)
    seen = [await flip(gateway, clients, backends, number % 2) for number in range(count)]
    going = False
    for client in clients:
        await client.done
    failed = sum(client.failed for client in clients)
    for name, values in (
        ("first new answer", [one.first_new for one in seen]),
        ("last old request", [one.last_old for one in seen]),
    ):
        print(f"{name}: median {statistics.median(values):.1f} ms, p99 {_p99(values):.1f} ms after the change")
    print(f"encoded for a change: {max(one.encoded for one in seen)}, bytes {max(one.sent for one in seen)}")
    print(f"failed requests: {failed}")


async def spread(gateway: Gateway, backends: Sequence[int], runs: int) -> None:
    """Send runs of 100 requests at 90/10 and print how much the share varies."""
    gateway.apply(website(gateway.port, backends, [90, 10]))
    await asyncio.sleep(SETTLED_S)
    answers: list[Answered] = []
    clients = await connect(gateway.port, 1, lambda: len(clients[0].seen) < runs * RUN)
    for client in clients:
        await client.done
        answers += client.seen
    counts = [
        sum(answer.name == NAMES[1] for answer in answers[start : start + RUN]) for start in range(0, runs * RUN, RUN)
    ]
    random_pick = math.sqrt(RUN * SHARE * (1 - SHARE))
    print(
        f"share of 10 % in {runs} runs of {RUN}: {min(counts)} to {max(counts)}, standard deviation "
        f"{statistics.pstdev(counts):.2f} (an independent random pick: {random_pick:.2f})"
    )


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


async def measure(*, flip_count: int, runs: int) -> None:
    """Run both parts on one gateway."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend(name)) for name in NAMES]
        gateway = await start_gateway(stack, directory, website(free_port(), backends, [0, 100]))
        await flips(gateway, backends, flip_count)
        await spread(gateway, backends, runs)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=50)
    parser.add_argument("--runs", type=int, default=200)
    arguments = parser.parse_args()
    uvloop.run(measure(flip_count=arguments.flips, runs=arguments.runs))


if __name__ == "__main__":
    main()
