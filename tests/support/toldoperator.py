"""The metrics of an operator that tells of one group, for a real Prometheus to scrape."""

from promptgroup_operator.telemetry.collector import PassSummary
from promptgroup_operator.telemetry.metrics import OperatorMetrics
from promptgroup_operator.telemetry.metrics_server import GroupCollector
from promptgroup_operator.world.snapshot import Key


def told_operator(
    look: PassSummary, *, leads: bool, ready: tuple[str, str], cache: tuple[str, str], price: float = 0.0
) -> OperatorMetrics:
    """What an operator tells of `chat/support`; its conditions Ready and CacheEffective as (status, reason)."""
    group = {
        "metadata": {"namespace": "chat", "name": "support"},
        "spec": {
            "model": "llama",
            "engine": {"type": "vLLM", "resources": {"limits": {"nvidia.com/gpu": 1}}},
            "sizing": {"minReplicas": 1, "maxReplicas": 4},
        },
        "status": {
            "conditions": [
                {"type": kind, "status": status, "reason": reason}
                for kind, (status, reason) in (
                    ("Ready", ready),
                    ("CacheEffective", cache),
                    ("CachePoolReady", ("True", "PoolReady")),
                )
            ],
            "replicas": 4,
        },
    }
    told = OperatorMetrics()
    told.leader.set_function(lambda: leads)
    told.registry.register(GroupCollector(lambda: True, lambda: [group], lambda: {Key("chat", "support"): look}, price))
    return told
