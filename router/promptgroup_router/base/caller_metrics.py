"""The metrics of identified callers, by group. Does no I/O and reads no clock.

Requests are counted in one object per group and caller, whose numbers become series when metrics are requested.
"""

from collections.abc import Callable, Container, Generator
from typing import TYPE_CHECKING

from promptgroup_router.base.steps import at_once

if TYPE_CHECKING:
    from promptgroup_router.base.metrics import Counter

MOST_LABELS = 500
"""Most callers with a label of their own: the first ones, so that no issuer of tokens exhausts Prometheus."""
OTHERS = "-others"
"""The label of all further callers; no caller has this name."""


class CallerUse:
    """The use of one group by one caller since the router started."""

    __slots__ = ("answer_tokens", "cached_tokens", "limited", "prompt_tokens", "requests", "reused_tokens", "unmetered")

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}
        """Status of the answer → requests."""
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.answer_tokens = 0
        self.reused_tokens = 0
        """Tokens of answers that no engine has computed for this caller."""
        self.unmetered = 0
        """Answers whose tokens no engine has reported."""
        self.limited: dict[str, int] = {}
        """Code of the error → requests that were refused because of a limit."""

    def answered(self, status: int) -> None:
        """Count an answer."""
        self.requests[status] = self.requests.get(status, 0) + 1

    def refused(self, code: str) -> None:
        """Count a request that was refused because of a limit."""
        self.limited[code] = self.limited.get(code, 0) + 1


class CallerMetrics:
    """The use of all callers, and its series."""

    def __init__(self, counter: "Callable[[str, str, tuple[str, ...]], Counter]") -> None:
        self._groups: dict[str, dict[str, CallerUse]] = {}
        """Group → caller's label → use."""
        self._labelled: set[str] = set()
        """The callers with a label of their own."""
        self.requests = counter(
            "caller_requests_total", "Completed requests of identified callers.", ("group", "caller", "code")
        )
        self.prompt_tokens = counter(
            "caller_prompt_tokens_total", "Prompt tokens of identified callers.", ("group", "caller")
        )
        self.cached_tokens = counter(
            "caller_cached_tokens_total",
            "Prompt tokens of identified callers that engines found in their prefix cache.",
            ("group", "caller"),
        )
        self.answer_tokens = counter(
            "caller_answer_tokens_total", "Tokens of answers to identified callers.", ("group", "caller")
        )
        self.reused_tokens = counter(
            "caller_kept_answer_tokens_total",
            "Tokens of answers to identified callers that no engine computed for them: cached answers, and "
            "answers shared with other requests.",
            ("group", "caller"),
        )
        self.unmetered = counter(
            "caller_unmetered_answers_total",
            "Answers to identified callers whose tokens no engine has reported: the answer had no usage, was cut, its "
            "client left, or a gateway shows pickers no answers. Tokens of streams are estimated.",
            ("group", "caller"),
        )
        self.limited = counter(
            "limited_requests_total",
            "Requests refused because their caller had reached a limit.",
            ("group", "caller", "code"),
        )

    def of(self, group: str, caller: str) -> CallerUse:
        """Return the use of a group by a caller; callers that are not identified count as one without a name."""
        callers = self._groups.get(group)
        if callers is not None and (caller_use := callers.get(caller)) is not None:
            return caller_use
        return self._begin(group, caller)

    def tell(self) -> None:
        """Update the series at once: see `tell_steps`."""
        at_once(self.tell_steps())

    def tell_steps(self) -> Generator[None, None, None]:
        """Update the series, with one step per caller of a group."""
        result: list[tuple[Counter, dict[tuple[str, ...], float]]] = [
            (self.requests, {}), (self.limited, {}), (self.prompt_tokens, {}), (self.cached_tokens, {}),
            (self.answer_tokens, {}), (self.reused_tokens, {}), (self.unmetered, {}),
        ]  # fmt: skip
        requests, limited, prompt, cached, answer, reused, unmetered = (values for _, values in result)
        for group, callers in list(self._groups.items()):
            for label, use in list(callers.items()):
                for code, number in use.requests.items():
                    requests[group, label, str(code)] = number
                for reason, number in use.limited.items():
                    limited[group, label, reason] = number
                if label and (use.requests or use.unmetered):
                    place = group, label
                    prompt[place], cached[place], answer[place] = (
                        use.prompt_tokens,
                        use.cached_tokens,
                        use.answer_tokens,
                    )
                    reused[place], unmetered[place] = use.reused_tokens, use.unmetered
                yield
        for counter, values in result:
            counter.put((yield from counter.series_steps(values)))

    def keep(self, result: Container[tuple[str, ...]]) -> None:
        """Drop the series of groups whose label is not listed."""
        self._groups = {group: callers for group, callers in self._groups.items() if (group,) in result}

    def _begin(self, group: str, caller: str) -> CallerUse:
        label = caller
        if caller and caller not in self._labelled:
            if len(self._labelled) < MOST_LABELS:
                self._labelled.add(caller)
            else:
                label = OTHERS
        return self._groups.setdefault(group, {}).setdefault(label, CallerUse())
