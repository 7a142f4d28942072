"""The products and their prices in euros, from a file."""

import json
from pathlib import Path

from rpc import serve

PRODUCTS = json.loads(Path("/etc/catalog/products.json").read_text())

if __name__ == "__main__":
    serve(3550, "shop.Catalog", {"ListProducts": lambda request, context: PRODUCTS})
