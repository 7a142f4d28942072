"""Headers that a client sends in a proxy's name, and what an application may get of them."""

import itertools
import re
from collections.abc import Mapping

from headgate.model.sanitizing import CERTIFICATE, RESERVED, RESERVED_NAMES

FORGED = "forged"
SPELLINGS = tuple(
    "".join(itertools.chain.from_iterable(zip(words, (*marks, ""), strict=True)))
    for words in (CERTIFICATE.split("-"), ["x", "forwarded", "for"], ["x", "forwarded", "proto"])
    for marks in itertools.product("-_", repeat=len(words) - 1)
)
FORGERIES = (
    *RESERVED_NAMES,
    *(name.replace("-", "_") for name in RESERVED_NAMES),
    *("x-envoy-of-the-future", "X-Envoy-Capital", "x_envoy-mixed", "x-headgate-address", "x-headgate-draw"),
    *("x-headgate-host", "x-headgate-tunnel", "x_headgate_user"),
    *(name for name in SPELLINGS if "client" in name),
)
OWN = (
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "forwarded",
    "x-request-id",
    "x-client-trace-id",
    "x-own",
)
"""Headers that are words of the client, at every listener."""
OF_PROXIES = ("x-forwarded-for", "x-forwarded-proto")
"""Headers that a Gateway sets, and that clients inside the mesh pass on."""


def forged(headers: Mapping[str, str]) -> set[str]:
    return {name for name, value in headers.items() if FORGED in value}


def assert_words_of_the_client(headers: Mapping[str, str]) -> None:
    """Assert that an application got all headers that are words of the client, and no reserved one, not even from a proxy."""
    spelled = {name for name in SPELLINGS if "client" not in name}
    assert forged(headers) == {*OWN, *spelled}
    assert not {name for name in headers if re.fullmatch(RESERVED, name)}
