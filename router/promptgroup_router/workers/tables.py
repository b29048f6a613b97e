"""Makes one answer of what several workers say of the table and of unmatched requests. Does no I/O, reads no clock."""

from collections.abc import Sequence
from typing import Any

import orjson

from promptgroup_router.undeclared import shared_prefixes, unmatched

Document = dict[str, Any]


def merge_tables(documents: Sequence[Document]) -> bytes:
    """Return one answer to `GET /table`, from those of the workers; there is at least one.

    Requests in flight are added, and moves of sessions put together. What all workers believe of a replica is taken
    from the one that believes most.
    """
    first = documents[0]
    replicas: dict[str, list[Document]] = {}
    for document in documents:
        for name, said in document["replicas"].items():
            replicas.setdefault(name, []).append(said)
    merged = {name: _replica(said) for name, said in replicas.items()}
    moves = sorted((each for document in documents for each in document["moves"]), key=_age, reverse=True)
    return orjson.dumps(first | {"replicas": merged, "moves": moves}, option=orjson.OPT_INDENT_2)


def _age(move: Document) -> float:
    return float(move["secondsAgo"])


def _replica(said: Sequence[Document]) -> Document:
    own = sum(each["inFlight"] for each in said)
    # a worker counts the others among its peers, so what it knows of is the load of all routers
    everywhere = max(each["inFlight"] + each["inFlightOfPeers"] for each in said)
    highest = {name: max(each[name] for each in said) for name in said[0]}
    return highest | {"inFlight": own, "inFlightOfPeers": max(0, everywhere - own)}


def merge_unmatched(documents: Sequence[Document]) -> bytes:
    """Return one answer to `GET /unmatched`, from those of the workers."""
    return orjson.dumps(unmatched.merge(documents) | shared_prefixes.merge(documents), option=orjson.OPT_INDENT_2)
