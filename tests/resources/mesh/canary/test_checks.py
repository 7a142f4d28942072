"""Checks of Canaries (R18, R109, D19): each message names the field and what to write."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.decoding import validate
from tests.resources.canary import BACKENDS, WITH_BASELINE, canary_with

from headgate.admission.chain import object_check
from headgate.settings import Settings

ANALYSIS = "spec.analysis"
BASELINE = {"baseline": "website-base"}
THREE = [*BACKENDS, {"service": "website-v3", "weight": 1}]
SELF = [{"service": "website", "weight": 9}, {"service": "website-v2", "weight": 1}]


def weighted(*weights: Any) -> list[dict[str, Any]]:
    names = ("website-v1", "website-v2", "website-base")
    return [{"service": name, "weight": weight} for name, weight in zip(names, weights, strict=False)]


@pytest.mark.parametrize(
    ("analysis", "spec"),
    [
        (None, {}),
        (None, {"backends": THREE, "paused": True}),
        ({}, {}),
        ({"steps": []}, {}),
        ({"steps": [{"share": "10%", "pause": True}, {"share": "100%"}]}, {}),
        ({"stepShare": "10%", "maxShare": "50%"}, {"backends": weighted(1, "0m")}),
        ({**BASELINE, "steps": [{"share": "50%"}, {"share": "100%", "pause": True}]}, {"backends": WITH_BASELINE}),
        ({"success": {"min": "100%"}}, {}),
        ({"mirror": "0.5%", "matches": [{"name": "testers", "headers": {"x-tester": "yes"}}]}, {}),
        ({"success": {"maxDrop": "0.5%", "margin": "0.25%", "min": "99.5%"}, "errorProbability": "0.1%"}, {}),
        (
            {
                "latencies": [
                    {"percentile": "p99", "max": "1s", "maxIncrease": "10%"},
                    {"percentile": "p50", "max": "9ms"},
                ]
            },
            {},
        ),
        ({"failuresWithin": "10s", "success": {"maxDrop": "0%", "min": "99%"}}, {}),
        ({"interval": "1m30s", "minRequests": 1, "dryRun": True}, {}),
    ],
)
def test_a_valid_canary_is_accepted(analysis: Any, spec: Any) -> None:
    assert validate(canary_with(analysis, **spec)) == ()


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"service": None}, "spec.service", "is missing"),
        ({"service": "web site"}, "spec.service", "write website, website.namespace or its FQDN"),
        ({"backends": []}, "spec.backends", "name at least one Service and its weight"),
        ({"backends": weighted(1, "100x")}, "spec.backends[1].weight", "write for example 1, 500m or 1.5"),
        ({"backends": weighted(1, -1)}, "spec.backends[1].weight", "must be 0 or more"),
        ({"backends": [BACKENDS[0], BACKENDS[0]]}, "spec.backends[1].service", "name it once, with one weight"),
        (
            {"backends": [BACKENDS[0], {"service": "website-v1.shop", "weight": 1}]},
            "spec.backends[1].service",
            "is the same Service as in spec.backends[0]",
        ),
        ({"paused": "yes"}, "spec.paused", "must be true or false"),
        ({"analyses": {}}, "spec.analyses", "did you mean analysis?"),
    ],
)
def test_a_mistake_in_the_split_is_reported_as_for_a_traffic_split(spec: Any, field: str, message: str) -> None:
    (cause,) = validate(canary_with(**spec))
    assert cause.field == field
    assert message in cause.message


@pytest.mark.parametrize(
    ("analysis", "spec", "field", "message"),
    [
        ({"canary": None}, {}, f"{ANALYSIS}.canary", "is missing"),
        ({"canary": "website-v3"}, {}, f"{ANALYSIS}.canary", "the new version: website-v1 or website-v2"),
        (
            BASELINE,
            {"backends": THREE},
            f"{ANALYSIS}.baseline",
            "is not one of spec.backends; name the backend with the primary",
        ),
        ({"baseline": "website-v2"}, {"backends": THREE}, f"{ANALYSIS}.baseline", "is the canary; name another"),
        ({}, {"backends": THREE}, "spec.backends", "must be 2 for this analysis, the primary and the canary, not 3"),
        ({}, {"backends": THREE}, "spec.backends", "name the third one in spec.analysis.baseline, or remove it"),
        ({}, {"backends": BACKENDS[1:]}, "spec.backends", "must be 2 for this analysis"),
        ({"baseline": "website-v1"}, {}, "spec.backends", "must be 3 for this analysis"),
        ({"failuresWithin": "900ms"}, {}, f"{ANALYSIS}.failuresWithin", "must be at least 1s"),
        (
            {"failuresWithin": "10s", "success": {"maxDrop": "1%"}},
            {},
            f"{ANALYSIS}.success.maxDrop",
            "must be 0% with failuresWithin",
        ),
        ({}, {"backends": weighted(0, 1)}, "spec.backends[0].weight", "must be above 0: the primary"),
        ({}, {"backends": weighted(0, 0)}, "spec.backends[0].weight", "must be above 0: the primary"),
        ({}, {"backends": weighted(1, 0)}, "spec.backends[1].weight", "would get all traffic without evidence"),
        (BASELINE, {"backends": weighted(8, "100m", 1)}, "spec.backends[2].weight", "must be that of the canary, 100m"),
    ],
)
def test_backends_must_fit_the_analysis(analysis: Any, spec: Any, field: str, message: str) -> None:
    (cause,) = validate(canary_with(analysis, **spec))
    assert cause.field == field
    assert message in cause.message


@pytest.mark.parametrize(
    ("analysis", "spec", "field", "message"),
    [
        ({"mirror": "0%"}, {}, "mirror", "must be above 0% and at most 100%, not 0%"),
        ({"mirror": "101%"}, {}, "mirror", "must be above 0% and at most 100%, not 101%"),
        ({"mirror": "20"}, {}, "mirror", "write for example"),
        ({"mirror": "20%", "dryRun": True}, {}, "mirror", "can't be combined with dryRun"),
        ({"matches": [{"name": "a"}], "dryRun": True}, {}, "matches", "can't be combined with dryRun"),
        ({"matches": []}, {}, "matches", "is empty"),
        ({"matches": [{"name": "a", "methods": []}]}, {}, "matches[0].methods", "must have at least 1 entry"),
        ({"matches": [{"name": "a", "headers": {"x-a": "("}}]}, {}, "matches[0].headers.x-a", "'('"),
        ({"matches": [{"name": "a", "headers": [{"x-a": "1"}]}]}, {}, "matches[0].headers", "must be a map"),
        (
            {"steps": [{"share": "50%"}, {"share": "20%"}]},
            {},
            "steps[1].share",
            "must be above the share of the step before, 50%",
        ),
        (
            {"steps": [{"share": "50%"}, {"share": "50%"}]},
            {},
            "steps[1].share",
            "must be above the share of the step before, 50%",
        ),
        ({"steps": [{"share": "0%"}]}, {}, "steps[0].share", "must be above 0% and at most 100%, not 0%"),
        ({"steps": [{"share": "101%"}]}, {}, "steps[0].share", "must be above 0% and at most 100%, not 101%"),
        ({"steps": [{"share": 20}]}, {}, "steps[0].share", "must be text"),
        ({"steps": [{"pause": True}]}, {}, "steps[0].share", "is missing"),
        ({"steps": [{"share": "9%"}]}, {}, "steps[0].share", "must be at least 10%, the canary's share by the weights"),
        ({"steps": [{"share": "33%"}]}, {"backends": weighted(2, 1)}, "steps[0].share", "must be at least 33.33"),
        (
            {"steps": [{"share": "20%"}], "stepShare": "10%"},
            {},
            "stepShare",
            "can't be combined with steps",
        ),
        (
            {"steps": [{"share": "20%"}], "maxShare": "10%"},
            {},
            "maxShare",
            "can't be combined with steps",
        ),
        ({"stepShare": "10%"}, {}, "maxShare", "is missing: write the canary's share at which the steps"),
        ({"maxShare": "50%"}, {}, "stepShare", "is missing: write by how much each step"),
        ({"stepShare": "0%", "maxShare": "50%"}, {}, "stepShare", "must be above 0% and at most 100%"),
        ({"stepShare": "1%", "maxShare": "9%"}, {}, "maxShare", "must be at least 10"),
        ({**BASELINE, "steps": [{"share": "60%"}]}, {"backends": WITH_BASELINE}, "steps[0].share", "at most 50"),
        (
            {**BASELINE, "stepShare": "10%", "maxShare": "60%"},
            {"backends": WITH_BASELINE},
            "maxShare",
            "must be at most 50%, because the baseline has the same share",
        ),
    ],
)
def test_the_shares_of_steps_must_rise_from_that_of_the_backends(
    analysis: Any, spec: Any, field: str, message: str
) -> None:
    (cause,) = validate(canary_with(analysis, **spec))
    assert cause.field == f"{ANALYSIS}.{field}"
    assert message in cause.message


@pytest.mark.parametrize(
    ("analysis", "field", "message"),
    [
        ({"interval": "0s"}, "interval", "must be longer than 0"),
        ({"interval": "1 minute"}, "interval", "write for example 10s, 500ms or 1h30m"),
        ({"minRequests": 0}, "minRequests", "must be 1 or more, not 0"),
        ({"errorProbability": "0%"}, "errorProbability", "must be above 0% and below 50%"),
        ({"errorProbability": "50%"}, "errorProbability", "must be above 0% and below 50%"),
        ({"errorProbability": "0.01"}, "errorProbability", "is not a percentage; write for example 1% or 99.5%"),
        ({"errorProbability": 1}, "errorProbability", "must be text"),
        ({"success": {"maxDrop": "-1%"}}, "success.maxDrop", "is not a percentage"),
        ({"success": {"maxDrop": "1/0%"}}, "success.maxDrop", "is not a percentage"),
        ({"success": {"maxDrop": "100%"}}, "success.maxDrop", "maxDrop and margin together must be below 100%"),
        ({"success": {"maxDrop": "60%", "margin": "40%"}}, "success.margin", "together must be below 100%"),
        ({"success": {"margin": "0%"}}, "success.margin", "must be above 0%"),
        ({"success": {"min": "0%"}}, "success.min", "must be above 0% and at most 100%"),
        ({"success": {"min": "100.5%"}}, "success.min", "must be above 0% and at most 100%"),
        ({"success": {"min": "100%", "maxDrop": "1%"}}, "success.maxDrop", "any failure rolls back; remove maxDrop"),
        ({"latencies": [{"percentile": "p99"}]}, "latencies[0]", "write max, for example 500ms, or maxIncrease"),
        ({"latencies": [{"max": "1s"}]}, "latencies[0].percentile", "is missing"),
        ({"latencies": [{"percentile": "99", "max": "1s"}]}, "latencies[0].percentile", "write p50 to p99"),
        ({"latencies": [{"percentile": "p9", "max": "1s"}]}, "latencies[0].percentile", "write p50 to p99"),
        ({"latencies": [{"percentile": "p100", "max": "1s"}]}, "latencies[0].percentile", "write p50 to p99"),
        ({"latencies": [{"percentile": "p99", "max": "0ms"}]}, "latencies[0].max", "must be longer than 0"),
        ({"latencies": [{"percentile": "p99", "max": "0.5s"}]}, "latencies[0].max", "with whole numbers"),
        ({"latencies": [{"percentile": "p99", "maxIncrease": "x"}]}, "latencies[0].maxIncrease", "is not a percentage"),
        (
            {"latencies": [{"percentile": "p90", "max": "1s"}, {"percentile": "p900", "max": "2s"}]},
            "latencies[1].percentile",
            "is that of latencies[0] too; write max and maxIncrease of a percentile into one entry",
        ),
    ],
)
def test_a_limit_without_a_meaning_is_reported(analysis: Any, field: str, message: str) -> None:
    (cause,) = validate(canary_with(analysis))
    assert cause.field == f"{ANALYSIS}.{field}"
    assert message in cause.message


def test_all_mistakes_are_reported_together() -> None:
    analysis = {"canary": "v9", "interval": "0s", "stepShare": "5%", "latencies": [{"percentile": "p99"}]}
    fields = [cause.field for cause in validate(canary_with(analysis))]
    assert fields == [f"{ANALYSIS}.{name}" for name in ("canary", "maxShare", "interval", "latencies[0]")]


@pytest.mark.parametrize(
    "analysis",
    [
        {"canary": ["a"], "baseline": {"a": 1}},
        {"steps": {"share": 1}, "stepShare": "x", "maxShare": []},
        {"success": [], "latencies": {}, "interval": 5, "errorProbability": []},
        {"steps": [1, {"share": True}], "latencies": [None, {"percentile": 99, "max": 1, "maxIncrease": []}]},
    ],
)
def test_values_of_wrong_types_are_mistakes(analysis: Any) -> None:
    causes = validate(canary_with(analysis))
    assert causes
    assert all(cause.field.startswith(ANALYSIS) or cause.field == "spec.backends" for cause in causes)


def test_a_canary_must_not_be_one_of_its_own_backends() -> None:
    """R18, D1: a field allows it."""
    admitted = object_check(Settings())
    (cause,) = admitted(canary_with(backends=SELF)).causes
    assert cause.field == "spec.backends[0].service"
    assert "website is both the root and a backend" in cause.message
    assert cause.message.endswith("or set spec.allowSelfReference to true")
    allowed = canary_with(backends=SELF, allowSelfReference=True)
    assert admitted(allowed).causes == ()


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"stickiness": {"by": "Cookie"}}, "stickiness.name", "is missing: write the name of the cookie or header"),
        (
            {"stickiness": {"by": "Header", "name": "x y"}},
            "stickiness.name",
            "'x y' is not the name of a header or cookie",
        ),
        (
            {"stickiness": {"by": "Source", "name": "ip"}},
            "stickiness.name",
            "can't be combined with by: Source; remove it",
        ),
        ({"stickiness": {"by": "User"}}, "stickiness.by", "must be one of Cookie, Header, Source, not 'User'"),
        ({"noEndpointsPolicy": "Drop"}, "noEndpointsPolicy", "must be one of Skip, Fail, not 'Drop'"),
        ({"allowSelfReference": "true"}, "allowSelfReference", "must be true or false, not text"),
        ({"gateway": "apache"}, "gateway", "must be one of Envoy, Nginx, not 'apache'"),
    ],
)
def test_fields_of_the_split_are_checked(spec: Mapping[str, Any], field: str, message: str) -> None:
    (cause,) = validate(canary_with(**spec))
    assert (cause.field, cause.message) == (f"spec.{field}", message)
