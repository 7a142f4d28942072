"""What statuses of headgate's kinds have: the generation, the conditions, and the numbers of proxies and pods."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from headgate.resources.schema.declared import Field, StatusPart, declared_schema


class ObjectCondition(StatusPart, frozen=True, kw_only=True):
    """A condition in the status of an object."""

    type: Annotated[str, Field("The type of the condition, for example Programmed.", required=True)]
    status: Annotated[str, Field("Whether it holds.", choices=("True", "False", "Unknown"), required=True)]
    observed_generation: Annotated[int, Field("The metadata.generation that the condition is about.")] = 0
    last_transition_time: Annotated[
        str, Field("The time at which the status last changed.", grammar="date-time", required=True)
    ]
    reason: Annotated[str, Field("The reason in one word, for programs.", required=True)]
    message: Annotated[str, Field("The reason in a sentence, with what to do next.", required=True)]


CONDITION = declared_schema(ObjectCondition, "A condition of the object.")


class ObjectStatus(StatusPart, frozen=True, kw_only=True):
    """What the status of every object has."""

    observed_generation: Annotated[int, Field("The metadata.generation that the status is about.")] = 0
    conditions: Annotated[
        tuple[ObjectCondition, ...],
        Field(
            "The current conditions of the object, such as Accepted, ResolvedRefs and Programmed; one entry for each type.",
            key="type",
            item=Field("A condition of the object."),
        ),
    ] = ()


class ProxyProgress(StatusPart, frozen=True, kw_only=True):
    """The progress of an object's configuration on proxies."""

    programmed: Annotated[int, Field("The number of proxies that acknowledged the configuration.")]
    total: Annotated[int, Field("The number of proxies that need the configuration.")]


PROXY_PROGRESS = Field("The progress of the object's configuration on proxies.")


class SelectedPodCounts(StatusPart, frozen=True, kw_only=True):
    """The numbers of pods that an object selects."""

    total: Annotated[int, Field("The number of pods.")]
    sidecars: Annotated[
        int, Field("The number of these pods with a sidecar; nothing is enforced at pods without a sidecar.")
    ]


SELECTED_PODS = Field("The pods that the object selects.")


def status_fields(part: StatusPart) -> dict[str, Any]:
    """Return a status, or a part of one, as JSON."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(part))
    return fields


def status_schema(shape: type[ObjectStatus], what: str) -> Mapping[str, Any]:
    """Return the schema for the status of an object; `what` names it."""
    return declared_schema(shape, f"The status of the {what}. Only the control plane writes it.")
