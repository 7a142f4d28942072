"""Charges cards; it refuses those that are expired."""

import itertools
from typing import Any

import grpc
from rpc import serve

NUMBERS = itertools.count(1)


def charge(request: Any, context: grpc.ServicerContext) -> str:
    """Return the number of the transaction."""
    if request["card"] == "expired":
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the card is expired")
    return f"transaction {next(NUMBERS)}"


if __name__ == "__main__":
    serve(50051, "shop.Payment", {"Charge": charge})
