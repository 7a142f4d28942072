"""A process that writes to a store until it is killed, and prints each acknowledged call.

Each line has the store's revision, the objects (name -> n) after this call, and the objects after the next call.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from headgate.resources.meta import Key, Object
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.store.sqlite import SqliteJournal

Objects = dict[str, str]
"""The number of each object by its name."""


def numbered_map(name: str, number: str, owner: Object | None = None) -> Object:
    metadata: dict[str, Any] = {"name": name}
    if owner:
        uid = owner["metadata"]["uid"]
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": uid}
        ]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"n": number}}


def planned(objects: Objects, number: str) -> tuple[tuple[str, str], Objects]:
    """Return the next call, (action, name), and the objects after it. The deletion of a parent deletes its child."""
    index = random.randrange(8)
    parent, child = f"parent{index}", f"child{index}"
    if parent not in objects:
        return ("create", parent), {**objects, parent: number}
    if child not in objects:
        return ("adopt", child), {**objects, child: number}
    if random.random() < 0.5:
        return ("update", child), {**objects, child: number}
    return ("delete", parent), {name: n for name, n in objects.items() if name not in (parent, child)}


async def call(store: MemoryStore, step: tuple[str, str], number: str) -> None:
    action, name = step
    key = Key("", "ConfigMap", "default", name)
    if action == "create":
        await store.create(numbered_map(name, number))
    elif action == "adopt":
        parent = await store.get(Key("", "ConfigMap", "default", name.replace("child", "parent")))
        await store.create(numbered_map(name, number, parent))
    elif action == "update":
        await store.update({**await store.get(key), "data": {"n": number}})
    else:
        await store.delete(key)


async def main(path: Path) -> None:
    store = MemoryStore(journal=SqliteJournal.open(path))
    objects = {obj["metadata"]["name"]: obj["data"]["n"] for obj in (await store.list("", "ConfigMap")).items}
    number = 0
    step, after = planned(objects, str(number))
    while True:
        await call(store, step, str(number))
        number += 1
        objects = after
        step, after = planned(objects, str(number))
        line = {"revision": store.revision, "objects": objects, "next": after}
        os.write(1, (json.dumps(line) + "\n").encode())


asyncio.run(main(Path(sys.argv[1])))
