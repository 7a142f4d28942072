"""The shop's page: GET / lists the products, POST /cart/USER/PRODUCT adds one, POST /checkout/USER/CARD pays all."""

import os
from collections.abc import Mapping
from typing import Any

import grpc
from rpc import Stub
from web import serve

CART, CATALOG, CURRENCY, PAYMENT = (
    Stub(os.environ[f"{name}_ADDR"], f"shop.{name.capitalize()}") for name in ("CART", "CATALOG", "CURRENCY", "PAYMENT")
)


def respond(method: str, path: str, _headers: Mapping[str, str]) -> tuple[int, Any]:
    """Serve a request; a call that fails is a 402."""
    try:
        match (method, *path.strip("/").split("/")):
            case ("GET", "health"):
                return 200, {}
            case ("GET", ""):
                products = CATALOG.call("ListProducts", {}).items()
                return 200, {
                    name: CURRENCY.call("Convert", {"euros": entry["price"], "to": "CHF"}) for name, entry in products
                }
            case ("POST", "cart", user, product):
                CART.call("AddItem", {"user": user, "product": product})
                return 200, {}
            case ("POST", "checkout", user, card):
                products = CART.call("GetCart", {"user": user})
                CART.call("EmptyCart", {"user": user})
                return 200, {"transaction": PAYMENT.call("Charge", {"card": card}), "products": products}
    except grpc.RpcError as error:
        return 402, {"message": error.details()}
    return 404, {}


if __name__ == "__main__":
    serve(8080, respond)
