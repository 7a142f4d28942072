"""What admission sees of the other objects: a namespace, and the objects in it."""

from collections.abc import Mapping

from tests.make.objects import Object, namespace

from headgate.resources.registry import key_of
from headgate.standalone.store.object_index import ObjectIndex

SHOP = "shop"


def shop_view(labels: Mapping[str, str], *objects: Object, name: str = SHOP) -> ObjectIndex:
    """Return the view of a store with a namespace, by default `shop`, which has `labels`, and further objects."""
    stored = ObjectIndex()
    for obj in (namespace(name, labels=labels), *objects):
        stored.put(key_of(obj), {**obj, "metadata": {**obj["metadata"], "uid": str(key_of(obj))}})
    return stored
