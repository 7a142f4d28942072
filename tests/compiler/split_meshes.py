"""Compile a split of a root `web`, and read its routes."""

from collections.abc import Collection, Mapping

from tests.make.objects import Object, endpoint_slice, headgate_keys, service, split

from headgate.compiler.report import Compiled
from headgate.model.routing import PortRef, RouteTable, Split

ROOT = PortRef("default/web", 80)


def split_world(
    weights: Mapping[str, int],
    *,
    root: tuple[int, ...] = (80,),
    dead: Collection[str] = (),
    ports: Mapping[str, tuple[int, ...]] | None = None,
    **annotations: str,
) -> list[Object]:
    """Return a root `web` and backends by weight.

    Backends in `dead` have no endpoints; `ports` sets ports of some backends.
    """
    objects = [service("web", *root), split("web", weights, annotations=headgate_keys(**annotations))]
    for number, name in enumerate(weights):
        offered = (ports or {}).get(name, (80,))
        objects.append(service(name, *offered))
        if name not in dead:
            objects.append(endpoint_slice(name, [f"10.1.0.{number}"], {f"p{port}": port for port in offered}))
    return objects


def root_table(result: Compiled) -> RouteTable:
    """Return the routes of port 80 of the root."""
    (table,) = (table for table in result.mesh.tables if table.ref == ROOT)
    return table


def root_split(result: Compiled) -> Split:
    """Return the split of the root's first route."""
    return root_table(result).routes[0].split


def targets(result: Compiled) -> Mapping[str, int]:
    """Return the weight of each target of the root by the name of its Service."""
    return {item.ref.service.partition("/")[2]: item.weight for item in root_split(result).targets}
