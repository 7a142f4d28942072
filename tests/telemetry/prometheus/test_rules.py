"""The recording rules and alerts of deploy/prometheus, by Prometheus' own tool: what they say of which series."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

PROMTOOL = shutil.which("promtool")
RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "headgate.rules.yml"
CASES = Path(__file__).parent / "alerts.yml"


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (Debian: prometheus)")
def test_alerts_fire_when_they_should_and_at_no_other_time_and_rates_are_right():
    done = subprocess.run(
        [PROMTOOL, "test", "rules", CASES.name],
        cwd=CASES.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_seen_firing_and_seen_silent():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    looks = [look for case in yaml.safe_load(CASES.read_text())["tests"] for look in case.get("alert_rule_test", ())]
    assert {look["alertname"] for look in looks if look["exp_alerts"]} == alerts
    assert {look["alertname"] for look in looks if not look["exp_alerts"]} == alerts
