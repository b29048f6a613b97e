from promptgroup_cli.reach.usage_prometheus import SERIES, query
from promptgroup_router.base.metrics import Metrics


def test_the_query_names_series_that_routers_have():
    names = {each.name for each in Metrics().all}
    assert set(SERIES.values()) <= names
    assert all(series in query(60, "") for series in SERIES.values())
