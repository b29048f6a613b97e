"""Decides which parameters of a client's query pass to engines, through routers and pickers alike. Does no I/O.

Requests of the supported APIs have their parameters in the body. vLLM 0.32 and 0.33 and SGLang 0.5.23 read parameters
of stored responses alone, besides those at paths for their operators. What SDKs add elsewhere (`beta=true` of
Anthropic's, `api-version` of Azure's) is read by none, and the next release may read more.
"""

from promptgroup_router.apis.endpoints import PASSED, Endpoint
from promptgroup_router.apis.responses import RESPONSES_PATH

OF_STORED_RESPONSES = frozenset((b"stream", b"starting_after", b"include", b"after", b"limit", b"order"))
"""The parameters by which OpenAI's API reads a response and the items of its input."""
_STORED = RESPONSES_PATH + b"/"


def engine_query(endpoint: Endpoint, path: bytes, query: bytes) -> bytes:
    """Return the query that an engine gets.

    Args:
        endpoint: the endpoint of the request; the one for paths that only the settings of the router allow gets all.
        path: of the request.
        query: behind the question mark.
    """
    if not query or endpoint is PASSED:
        return query
    if not path.startswith(_STORED):
        return b""
    return b"&".join(part for part in query.split(b"&") if part.partition(b"=")[0] in OF_STORED_RESPONSES)


def engine_target(endpoint: Endpoint, path: bytes, query: bytes) -> bytes:
    """Return the path and the query that an engine gets, as one text; the arguments are those of `engine_query`."""
    passed = engine_query(endpoint, path, query)
    return path + b"?" + passed if passed else path
