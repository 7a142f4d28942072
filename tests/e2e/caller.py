"""The program of a pod that sends planned requests: a file `N.json` in $PLANS has the number of requests for each URL.

For each plan the program writes `N.done`, with the number of responses by URL and status, and with the durations of
the requests in seconds by URL. A request without a response counts by the error in place of a status.
"""

import asyncio
import json
import os
import time
from collections import Counter, defaultdict
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

PLANS = Path(os.environ["PLANS"])
PROXY = urlsplit(os.environ["http_proxy"])
AT_ONCE = 10
POLL_S = 0.02


async def ask(url: str) -> tuple[str, float]:
    """Send one request over a new connection; return the status or the error, and the duration in seconds."""
    began = time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection(PROXY.hostname, PROXY.port)
        host = urlsplit(url).netloc
        began = time.perf_counter()
        writer.write(f"GET {url} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        response = await reader.read()
        writer.close()
        outcome = response.split(b" ", 2)[1].decode() if response else "closed"
    except OSError as error:
        outcome = repr(error)
    return outcome, time.perf_counter() - began


async def carry_out(plan: dict[str, int]) -> tuple[Counter[str], dict[str, list[float]]]:
    """Send the requests of a plan: all URLs in parallel, at most `AT_ONCE` requests at a time for each URL."""
    answers: Counter[str] = Counter()
    seconds: dict[str, list[float]] = defaultdict(list)

    async def send(url: str, turns: asyncio.Semaphore) -> None:
        async with turns:
            outcome, took = await ask(url)
            answers[f"{url} {outcome}"] += 1
            seconds[url].append(took)

    turns = {url: asyncio.Semaphore(AT_ONCE) for url in plan}
    await asyncio.gather(*(send(url, turns[url]) for url, number in plan.items() for _ in range(number)))
    return answers, seconds


async def main() -> None:
    """Carry out the plans in the order of their numbers."""
    for number in count():
        plan, done = PLANS / f"{number}.json", PLANS / f"{number}.done"
        while not plan.exists():
            await asyncio.sleep(POLL_S)
        if not done.exists():
            answers, seconds = await carry_out(json.loads(plan.read_text()))
            done.with_suffix(".new").write_text(json.dumps({"answers": answers, "seconds": seconds}))
            done.with_suffix(".new").rename(done)


asyncio.run(main())
