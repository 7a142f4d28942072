"""Lifecycle hooks of containers: postStart and preStop, by exec, httpGet or sleep, as in Kubernetes."""

import asyncio

from headgate.http_failures import describe
from headgate.resources.core.pod_spec import LifecycleHandler
from headgate.standalone.pods.commands import run_command
from headgate.standalone.pods.probes import ProbeTarget, http_fault


async def run_hook(handler: LifecycleHandler, target: ProbeTarget) -> str:
    """Run a hook to its end, without a time limit; return the fault, empty on success."""
    try:
        if handler.exec:
            return await run_command(handler.exec.command, target.launch)
        if handler.http_get:
            return await http_fault(handler.http_get, target)
    except OSError as error:
        return describe(error)
    except ValueError as error:
        return str(error)
    if handler.sleep:
        await asyncio.sleep(handler.sleep.seconds)
    return ""
