"""promtool reads the rules as Prometheus does: each alert fires on its trouble, when it should, and on nothing else."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from promptgroup_operator.telemetry.metrics import OperatorMetrics
from promptgroup_router.base.metrics import Metrics
from support.gotools import MissingToolError, program

pytestmark = pytest.mark.integration

RULES = yaml.safe_load((Path(__file__).parents[2] / "manifests/monitoring/rules.yaml").read_text())["spec"]
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]

GROUP = 'namespace="chat", name="support"'
READY, PROGRESSING, ROUTED, SCALED = (
    f'promptgroup_status_condition{{{GROUP}, condition="{each}", status="true"}}'
    for each in ("Ready", "Progressing", "RouterProgrammed", "ScalingActive")
)
POOL_AWAY = f'promptgroup_status_condition{{{GROUP}, condition="CachePoolReady", status="false"}}'
DESIRED, WARM = (f"promptgroup_status_{each}_replicas{{{GROUP}}}" for each in ("desired", "warm"))
ASKED = f"promptgroup_sizing_recommended_replicas{{{GROUP}}}"
MOST = f"promptgroup_spec_max_replicas{{{GROUP}}}"
LEADS, WAITS = (f'promptgroup_operator_leader{{namespace="promptgroup-system", pod="{pod}"}}' for pod in "ab")
FAULTS, REFUSED = (f'promptgroup_operator_pass_failures_total{{cause="{each}"}}' for each in ("fault", "cluster"))
PROMPTS = 'promptgroup_router_revision_prompt_tokens_total{group="chat/support", revision="0123abcd"}'
MISSED = 'promptgroup_router_missed_tokens_total{group="chat/support", revision="0123abcd", cause="evicted"}'
ANSWERED, FAILED = (f'promptgroup_router_requests_total{{group="chat/support", code="{code}"}}' for code in (200, 503))


def of_router(name: str, pod: str, more: str = "") -> str:
    return f'promptgroup_router_{name}{{namespace="chat", pod="{pod}"{more}}}'


def reason(kind: str, why: str) -> str:
    return f'promptgroup_{kind}_reason{{{GROUP}, reason="{why}"}}'


HEALTHY = {
    READY: "1x200",
    PROGRESSING: "0x200",
    ROUTED: "1x200",
    SCALED: "1x200",
    POOL_AWAY: "0x200",
    DESIRED: "4x200",
    WARM: "4x200",
    ASKED: "4x200",
    MOST: "8x200",
    reason("degraded", "AsExpected"): "1x200",
    reason("cache_effective", "Healthy"): "1x200",
    LEADS: "1x200",
    WAITS: "0x200",
    FAULTS: "0x200",
    REFUSED: "0x200",
    ANSWERED: "0+600x200",
    PROMPTS: "0+1000x200",
    MISSED: "0+30x200",
    **{
        of_router(name, pod, more): value
        for pod in ("r1", "r2")
        for name, more, value in (
            ("connections", "", "0x200"),
            ("table_info", ', version="7", source="kubernetes"', "1x200"),
            ("table_age_seconds", "", "30x200"),
            ("peers", "", "1x200"),
        )
    },
}
"""A group of four, sized, with two operators and two routers: what they tell each minute."""
TABLE = of_router("table_info", "r1", ', version="7", source="kubernetes"')


@dataclass(frozen=True, slots=True)
class Case:
    """A trouble from minute 0 on; no value is no series."""

    series: dict[str, str | None]
    alerts: tuple[str, ...] = ()
    quiet: int = 0
    """Minute at which nothing fires yet."""
    fires: int = 0
    """Minute from which the alerts fire, and no other."""


def of(alert: str, quiet: int, fires: int, series: dict[str, str | None]) -> Case:
    return Case(series, (alert,), quiet, fires)


def fresh() -> dict[str, str | None]:
    """All that a router and an operator tell from their start on where nothing beyond the defaults is configured."""
    found = {}
    for page, labels in (
        (Metrics().text(), 'namespace="chat", pod="r1"'),
        (generate_latest(OperatorMetrics().registry).decode(), 'namespace="promptgroup-system", pod="a"'),
    ):
        for line in page.splitlines():
            series, _, value = line.rpartition(" ")
            name, brace, more = series.partition("{")
            if name.startswith("promptgroup_") and name != "promptgroup_operator_leader":
                more = f", {more}" if brace else "}"
                found[f"{name}{{{labels}{more}"] = f"{float(value):g}x200"
    return found


CASES = {
    "all is well": Case({}, fires=180),
    "a default install": Case(fresh(), fires=180),
    "no replica is wanted": Case({READY: "0x200", ROUTED: "0x200", DESIRED: "0x200", WARM: "0x200"}, fires=180),
    "a release is judged": Case({READY: "0x200", PROGRESSING: "1x200"}, fires=180),
    "replicas are fixed": Case({SCALED: "0x200", ASKED: None, MOST: None}, fires=180),
    "the only router": Case(
        {of_router("peers", "r1"): "0x200"} | {name: None for name in HEALTHY if 'pod="r2"' in name},
        fires=180,
    ),
    "nothing to route to": of("PromptGroupNotServed", 14, 16, {ROUTED: "0x200"}),
    "held up": of("PromptGroupNotReady", 9, 11, {READY: "0x200"}),
    "a cold replica": of("PromptGroupColdReplica", 29, 31, {WARM: "3x200"}),
    "rolled back": of("PromptGroupRolledBack", 0, 1, {reason("degraded", "RolledBack"): "1x200"}),
    "caches too small": of("PromptGroupThrashing", 14, 16, {reason("cache_effective", "Thrashing"): "1x200"}),
    "a pool that is away": of("PromptGroupPoolAway", 4, 6, {POOL_AWAY: "1x200"}),
    "another prompt": of("PromptGroupPromptDrift", 14, 16, {reason("cache_effective", "PromptDrift"): "1x200"}),
    "little is shared": of("PromptGroupLowHitRate", 59, 61, {reason("cache_effective", "LowSharing"): "1x200"}),
    "no known reason": of("PromptGroupLowHitRate", 59, 61, {reason("cache_effective", "Unexplained"): "1x200"}),
    "sessions are evicted": of("PromptGroupComputesAgain", 29, 34, {MISSED: "0+300x200"}),
    "engines cannot be read": of("PromptGroupSizingBlind", 9, 11, {SCALED: "0x200"}),
    "at the most": of("PromptGroupAtMaxReplicas", 14, 16, {ASKED: "9x200"}),
    "nobody leads": of("PromptGroupOperatorNotLeading", 4, 6, {LEADS: "0x200"}),
    "no operator is there": of("PromptGroupOperatorNotLeading", 4, 6, {LEADS: None, WAITS: None}),
    "a fault": of("PromptGroupOperatorFault", 9, 12, {FAULTS: "0x10 1x200"}),
    "refused": of("PromptGroupOperatorRefused", 14, 18, {REFUSED: "0+1x200"}),
    "no table": of("PromptGroupRouterWithoutTable", 4, 6, {TABLE: None}),
    "an old table": of("PromptGroupRouterTableStale", 9, 12, {of_router("table_age_seconds", "r1"): "0+60x200"}),
    "no store of answers": of("PromptGroupAnswerStoreAway", 9, 11, {of_router("responses_store_up", "r1"): "0x200"}),
    "a router apart": of("PromptGroupRouterAlone", 9, 11, {of_router("peers", "r1"): "0x200"}),
    "failed requests": of("PromptGroupRouterErrors", 4, 8, {FAILED: "0+12x200"}),
}


@pytest.fixture(scope="module")
def promtool() -> str:
    try:
        return program("promtool")
    except MissingToolError as missing:
        pytest.skip(str(missing))


def run(promtool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump(RULES))
    return path


def test_prometheus_takes_the_rules(promtool: str, rules: Path) -> None:
    done = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(rules))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert {alert for case in CASES.values() for alert in case.alerts} == set(ALERTS)


def firing(minute: int, alerts: tuple[str, ...]) -> dict[str, object]:
    samples = [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in alerts]
    expression = 'group by (alertname) (ALERTS{alertstate="firing"})'
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


def test_each_alert_fires_on_its_trouble_and_on_nothing_else(promtool: str, rules: Path) -> None:
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [
                {"series": series, "values": values}
                for series, values in {**HEALTHY, **case.series}.items()
                if values is not None
            ],
            "promql_expr_test": [
                *([firing(case.quiet, ())] if case.quiet > 0 else []),
                firing(case.fires, case.alerts),
            ],
        }
        for name, case in CASES.items()
    ]
    path = rules.with_name("cases.yaml")
    path.write_text(yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": tests}))
    done = run(promtool, "test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
