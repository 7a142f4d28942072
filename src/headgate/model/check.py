"""What must hold in every mesh, whatever the input was. A violation is a bug of the compiler, never of the user."""

from headgate.model.routing import Mesh


def check(mesh: Mesh) -> tuple[str, ...]:
    """Return what is wrong with the mesh, one sentence each; nothing when all is well."""
    known = {entry.ref for entry in mesh.endpoints}
    offered = {(frontend.service, port) for frontend in mesh.frontends for port in frontend.ports}
    wrong = [f"{table.ref} has routes and no frontend" for table in mesh.tables if table.ref not in offered]
    for table in mesh.tables:
        targets = [target for route in table.routes for target in route.split.targets]
        wrong += [
            f"{table.ref} sends to {t.ref}, whose endpoints are not listed" for t in targets if t.ref not in known
        ]
        wrong += [f"{table.ref} has the weight {t.weight} for {t.ref}" for t in targets if t.weight < 1]
    return tuple(wrong)
