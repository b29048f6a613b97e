"""Reads the load of a running group from Prometheus, as the operator would read it."""

import argparse
from datetime import datetime

from promptgroup_cli.base.errors import ReachError
from promptgroup_operator.base.redacted_url import redacted_url
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import GroupLoad
from promptgroup_operator.world.snapshot import Key
from promptgroup_router.contract.fingerprint import Fingerprint


def load(arguments: argparse.Namespace, now: datetime) -> GroupLoad:
    """Return the load that Prometheus observed of the group.

    Raises:
        ReachError: it does not answer; says how not.
    """
    # the client takes half a second to import, which a sizing without it does not
    from promptgroup_operator.api.prompt_group import EngineType  # noqa: PLC0415
    from promptgroup_operator.engines.dialects.registry import DIALECTS  # noqa: PLC0415
    from promptgroup_operator.load.engine_history import EngineHistory  # noqa: PLC0415
    from promptgroup_operator.load.load_source import LoadSubject  # noqa: PLC0415
    from promptgroup_operator.load.prometheus import Prometheus  # noqa: PLC0415
    from promptgroup_operator.load.prometheus_api import PrometheusError  # noqa: PLC0415

    namespace, name = arguments.group
    settings = Settings(
        prometheus_url=arguments.from_prometheus,
        prometheus_token_file=arguments.prometheus_token_file,
        prometheus_ca_file=arguments.prometheus_ca_file,
    )
    subject = LoadSubject(
        key=Key(namespace, name),
        fingerprint=Fingerprint(arguments.revision),  # its first digits, which are all that metrics have
        names=DIALECTS[EngineType(arguments.engine)].metrics,
        deployment=f"{name}-{arguments.revision}",
        pods={},
        serving={},
        known=Measured(arguments.kv_tokens, round(arguments.prefill_rate), arguments.prompt_tokens),
        declared_bytes=0,
    )
    source = Prometheus(settings, EngineHistory())
    try:
        return source.ask(subject, now)
    except PrometheusError as error:
        raise ReachError(f"--from-prometheus {redacted_url(arguments.from_prometheus)}: {error}") from None
    finally:
        source.close()
