"""The carts of all users, in memory."""

from collections import defaultdict
from typing import Any

import grpc
from rpc import serve

CARTS: defaultdict[str, list[str]] = defaultdict(list)


def add_item(request: Any, _context: grpc.ServicerContext) -> list[str]:
    """Add a product; return the cart."""
    CARTS[request["user"]].append(request["product"])
    return CARTS[request["user"]]


def empty_cart(request: Any, _context: grpc.ServicerContext) -> list[str]:
    """Remove all products; return those that were in the cart."""
    return CARTS.pop(request["user"], [])


if __name__ == "__main__":
    methods = {
        "AddItem": add_item,
        "GetCart": lambda request, context: CARTS[request["user"]],
        "EmptyCart": empty_cart,
    }
    serve(7070, "shop.Cart", methods)
