"""The recording rules and alerts of deploy/prometheus, tested with promtool."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

PROMTOOL = shutil.which("promtool")
RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "headgate.rules.yml"
CASES = Path(__file__).parent / "alerts.yml"


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_accepts_the_rules_and_their_tests():
    done = subprocess.run(
        [PROMTOOL, "test", "rules", CASES.name],
        cwd=CASES.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_firing_and_a_silent_test():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    checks = [check for case in yaml.safe_load(CASES.read_text())["tests"] for check in case.get("alert_rule_test", ())]
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == alerts
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} == alerts
