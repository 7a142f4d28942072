"""Compare the model's routing with a real HAProxy's, for requests in random worlds."""

import os
from collections import Counter

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.differential.protocols import protocols
from tests.differential.worlds import requests, root_worlds, worlds
from tests.render.haproxy.haproxy_process import HaproxyProcess, needs_haproxy
from tests.render.rendered_lab import RenderedLab, compare

from headgate.render.haproxy.configuration import render

WORLDS = int(os.environ.get("FUZZ_WORLDS", "60"))


@needs_haproxy
@pytest.mark.timeout(0)
def test_haproxy_routes_as_the_model_predicts():
    seen = Counter()

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(st.one_of(worlds(protocols()), root_worlds()), st.lists(requests(), min_size=6, max_size=12, unique=True))
    def each(world, sent):
        note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.values()))
        served = lab.serve(world)
        for item in sent:
            found = compare(lab, served, item)
            seen["compared" if found is not None else "skipped"] += 1
            assert not found, f"{item}: {found}"

    with RenderedLab(render, HaproxyProcess) as lab:
        each()
    assert seen["compared"] > seen["skipped"]
