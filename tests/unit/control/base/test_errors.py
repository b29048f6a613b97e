from promptgroup_operator.base.errors import ClusterError, EngineError


def test_an_error_says_what_the_server_answered():
    refused = ClusterError("PATCH x: 429", status=429, retry_after=3.0)
    assert (str(refused), refused.status, refused.retry_after) == ("PATCH x: 429", 429, 3.0)
    assert EngineError("/metrics: status 404", status=404).status == 404


def test_without_an_answer_there_is_no_status():
    assert ClusterError("GET x: timeout").status is None
    assert EngineError("/metrics: timeout").status is None
