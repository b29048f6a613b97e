"""Pages of metrics that no honest process writes."""

from promptgroup_contract import names
from promptgroup_operator.engines import exposition

NAME = "vllm:cache_config_info"
QUERIES = "vllm:prefix_cache_queries_total"
ROUTER = names.METRIC_REVISION_REQUESTS
SHAPES = {
    "a label name without end": lambda name, size: f"{name}{{{'a' * size}}} 1",
    "label names without values": lambda name, size: f"{name}{{{'a,' * (size // 2)}}} 1",
    "a label value without end": lambda name, size: f'{name}{{a="{"b" * size}',
    "backslashes": lambda name, size: f'{name}{{a="{chr(92) * size}',
    "escaped quotes": lambda name, size: f'{name}{{a="{(chr(92) + chr(34)) * (size // 2)}',
    "quotes": lambda name, size: f"{name}{{{'a=' + chr(34) * size}}} 1",
    "labels without end": lambda name, size: f"{name}{{" + 'a="b",' * (size // 6) + "} 1",
    "spaces": lambda name, size: f"{name}{' ' * size}",
    "braces": lambda name, size: f"{name}{'{' * size}",
    "a value without end": lambda name, size: f"{name} {'9' * size}",
    "lines of it": lambda name, size: f'{name}{{a="b"}} 1\n' * (size // (len(name) + 11)),
    "broken lines of it": lambda name, size: f'{name}{{a="b" 1\n' * (size // (len(name) + 10)),
    "empty lines": lambda name, size: "\n" * size,
    "label names without end on lines at the limit": lambda name, size: (
        f"{name}{{{'a' * (exposition.MAX_LINE - len(name) - 4)}}} 1\n" * (size // exposition.MAX_LINE)
    ),
    "groups without end": lambda name, size: "".join(
        f'{name}{{group="chat/{i}",revision="r",le="{i}"}} 1\n' for i in range(size // (len(name) + 38))
    ),
}
"""Shape → a page of so many characters about a metric."""
