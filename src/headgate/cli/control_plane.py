"""`headgate control-plane`: run a replica of the control plane on Kubernetes."""

import asyncio
import contextlib
import logging
import os
import signal
from typing import Annotated, Literal

import typer

from headgate.admission.injection import InjectionMode
from headgate.cli.output import usage_error
from headgate.kubernetes.app import run
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.options import Options
from headgate.settings import Settings


def control_plane(
    image: Annotated[str, typer.Option(envvar="HEADGATE_IMAGE", help="Image of the containers that injection adds.")],
    sidecars: Annotated[
        InjectionMode,
        typer.Option(help="Which pods get a sidecar; labelled: those for which the label headgate.dev/inject is true."),
    ] = "labelled",
    mtls: Annotated[
        Literal["off", "permissive", "strict"],
        typer.Option(help="TLS mode of pods with a sidecar that no TLSConfig selects."),
    ] = "permissive",
    access: Annotated[
        Literal["selected", "deny"],
        typer.Option(help="Callers allowed at pods that no TrafficTarget selects; selected: all callers; deny: none."),
    ] = "selected",
    trust_domain: Annotated[str, typer.Option(help="Trust domain of all identities.")] = "cluster.local",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Write a detailed log.")] = False,
) -> None:
    """Run a replica of the control plane in a pod on Kubernetes."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    pod = os.environ.get("POD_NAME")
    if not pod:
        raise usage_error(
            "the environment has no POD_NAME: run the command in a pod, as the chart does", option="control-plane"
        )
    options = Options(
        pod=pod,
        image=image,
        sidecars=sidecars,
        settings=Settings(mtls=mtls, access=access, trust_domain=trust_domain),
    )
    asyncio.run(_until_signal(options))


async def _until_signal(options: Options) -> None:
    """Run until SIGTERM or SIGINT."""
    running = asyncio.ensure_future(run(options, InCluster(os.environ)))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
