"""`headgate control-plane`: run a replica of the control plane on Kubernetes."""

import logging
import os
from typing import Annotated

import typer

from headgate import durations, event_loop
from headgate.cli.common_options import duration
from headgate.cli.mesh_options import with_mesh_options
from headgate.cli.output import EndedCalls, PrintableFormatter, usage_error
from headgate.cli.until_signal import until_signal
from headgate.kubernetes import revision_app
from headgate.kubernetes.app import run
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.lease import LeaseLost
from headgate.kubernetes.options import VOLUME_S, Options
from headgate.kubernetes.permissions import DeniedRequests
from headgate.options import GivenOptions


@with_mesh_options()
def control_plane(
    image: Annotated[
        str,
        typer.Option(
            "--image",
            metavar="IMAGE",
            envvar="HEADGATE_IMAGE",
            help="Image of the containers that injection adds.",
        ),
    ],
    *,
    given: GivenOptions,
    volume_sync: Annotated[
        str,
        typer.Option(
            "--volume-sync",
            metavar="DURATION",
            envvar="HEADGATE_VOLUME_SYNC",
            help="The time in which kubelets write a changed ConfigMap into the volumes of running pods.",
        ),
    ] = durations.formatted(VOLUME_S),
    revision: Annotated[
        str,
        typer.Option(
            "--revision",
            metavar="NAME",
            help="Run a replica of this revision, which is tried on some namespaces beside the default one.",
        ),
    ] = "",
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Write a detailed log.")] = False,
) -> None:
    """Run a replica of the control plane in a pod on Kubernetes."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        handler.addFilter(DeniedRequests())
        handler.addFilter(EndedCalls())
    pod = os.environ.get("POD_NAME")
    if not pod:
        raise usage_error(
            "the environment has no POD_NAME: run the command in a pod, as the chart does", option="control-plane"
        )
    seconds = duration(volume_sync, "--volume-sync")
    options = Options(pod=pod, image=image, mesh=given.mesh, volume_seconds=seconds, revision=revision)
    replica = revision_app.run if revision else run
    event_loop.run(until_signal(replica(options, InCluster(os.environ)), plain=LeaseLost))
