"""Nodes, which are only stored and shown."""

from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.kind import Kind

KIND = Kind(
    names_of("Node", ""),
    status=True,
    columns=(
        NAME,
        Column("Status", cell=cells.node_state),
        Column("Roles", cell=cells.node_roles),
        AGE,
        Column("Version", cell=cells.at("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", cell=cells.of_type("status.addresses", "InternalIP", "address", cells.NONE), wide=True),
        Column("External-IP", cell=cells.of_type("status.addresses", "ExternalIP", "address", cells.NONE), wide=True),
        Column("OS-Image", cell=cells.at("status.nodeInfo.osImage"), wide=True),
        Column("Kernel-Version", cell=cells.at("status.nodeInfo.kernelVersion"), wide=True),
        Column("Container-Runtime", cell=cells.at("status.nodeInfo.containerRuntimeVersion"), wide=True),
    ),
)
