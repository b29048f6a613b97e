"""Decides why a prompt missed the cache: by a forecast, and then by the usage that the engine reports.

| reason                       | when                                                                                |
|------------------------------|-------------------------------------------------------------------------------------|
| `none`                       | repeated tokens hit the cache, or none are expected to miss it                      |
| `<part>_changed`             | a part of the prompt differs from the earlier prompt                                |
| `previous_message_not_found` | there is no record of the earlier prompt                                            |
| `new`                        | no earlier prompt is named, no part should repeat, and none hit the cache           |
| a cause of `misses`          | the prompt repeats, and missed the cache                                            |
"""

from typing import Any, NamedTuple

import orjson

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.apis.usage import Usage
from promptgroup_router.features.prompt_digest import PromptChange
from promptgroup_router.placement.misses import SLACK_SHARE, SLACK_TOKENS, expect_miss, miss_cause, repeated
from promptgroup_router.placement.pick import Pick

NOT_FOUND, UNAVAILABLE, NONE, NEW = "previous_message_not_found", "unavailable", "none", "new"


class MissDiagnosis(NamedTuple):
    """The reason why a prompt is not in cache, or `none`."""

    reason: str
    tokens: int = 0
    """Tokens that missed the cache for this reason; an estimate in a forecast."""
    reusable: int = 0
    """Tokens of the earlier prompt that hit the cache, or may hit it."""
    message: int | None = None
    """Index of the first message that changed, the system message not counted."""
    observed: bool = False
    """True if the diagnosis is based on the engine's usage; False for an expected reason."""

    @property
    def is_forecast(self) -> bool:
        """True if the usage may show another reason: a missing record of the earlier prompt is final."""
        return not self.observed and self.reason != NOT_FOUND

    def header(self) -> bytes:
        """Return the value of the answer's header, or of the comment at the end of a stream."""
        result = [self.reason]
        if self.reason != NONE:
            result.append(f"tokens={self.tokens}")
            result += [f"message={self.message}"] if self.message is not None else []
        return ";".join([*result, *(["forecast"] if self.is_forecast else [])]).encode()

    def field(self, form: ApiKind) -> bytes:
        """Return the member of the API's object, without a comma."""
        marked = {"forecast": True} if self.is_forecast else {}
        if form is ApiKind.MESSAGES:
            return b'"diagnostics":' + orjson.dumps({"cache_miss_reason": self._anthropic(), **marked})
        return b'"prompt_cache_diagnostics":' + orjson.dumps(self._openai() | marked)

    def _anthropic(self) -> dict[str, Any] | None:
        if self.reason == NONE:
            return None
        clear = self.reason == NOT_FOUND or self.reason.endswith("_changed")
        result: dict[str, Any] = {"type": self.reason if clear else UNAVAILABLE}
        return result | ({"cache_missed_input_tokens": self.tokens} if self.tokens else {})

    def _openai(self) -> dict[str, Any]:
        if self.reason == NONE:
            return {"type": "cache_hit"}
        if self.reason == NOT_FOUND:
            return {"type": "comparison_response_not_found"}
        if not self.reason.endswith("_changed"):
            return {"type": UNAVAILABLE}
        # the system text is a part of what OpenAI calls the input
        reason = self.reason if self.reason in ("model_changed", "tools_changed") else "input_changed"
        return {
            "type": "cache_miss",
            "reason": reason,
            "cache_missed_tokens": self.tokens,
            "comparison_reusable_tokens": self.reusable,
        }


def expect(change: PromptChange | None, pick: Pick | None, tokens_a_byte: float) -> MissDiagnosis:
    """Return the forecast before the engine answers.

    Args:
        change: the first difference from the prompt that the client names; None without one.
        pick: the replica that gets the request, with the estimate of its cache; None without one.
        tokens_a_byte: estimated tokens per byte of the prompt.
    """
    if change is not None:
        return _changed(change, round(change.lost * tokens_a_byte), round(change.same * tokens_a_byte), observed=False)
    missed = expect_miss(pick) if pick is not None else None
    return MissDiagnosis(missed.cause, round(missed.tokens)) if missed is not None else MissDiagnosis(NONE)


def observe(
    change: PromptChange | None,
    pick: Pick | None,
    usage: Usage,
    *,
    earlier: float,
    named: bool,
) -> MissDiagnosis | None:
    """Return the diagnosis by the engine's usage of the answer; None if that does not report cached tokens.

    Args:
        change: the first difference from the prompt that the client names; None without one.
        pick: the replica that has answered, with the estimate of its cache; None without one.
        usage: as the engine reports it.
        earlier: length of the prompt that the client names, as a share of this one's; 0 without one.
        named: whether the client names an earlier prompt.
    """
    prompt, cached = usage.prompt_tokens, usage.cached_tokens
    if cached is None:
        return None
    if change is not None and (gone := earlier * prompt - cached) > _slack(earlier * prompt):
        return _changed(change, round(gone), cached, observed=True)
    repeats = min(float(prompt), earlier * prompt)
    if pick is not None:
        repeats = max(repeats, repeated(pick, usage))
    lost = repeats - cached
    if change is None and lost > _slack(repeats) and pick is not None:
        return MissDiagnosis(miss_cause(pick), round(lost), cached, observed=True)
    if not named and repeats <= SLACK_TOKENS and cached <= SLACK_TOKENS < prompt - cached:
        return MissDiagnosis(NEW, prompt - cached, cached, observed=True)
    return MissDiagnosis(NONE, 0, cached, observed=True)


def _changed(change: PromptChange, lost: int, reusable: int, *, observed: bool) -> MissDiagnosis:
    return MissDiagnosis(f"{change.what}_changed", lost, reusable, change.message, observed)


def _slack(tokens: float) -> float:
    """Return the tokens that may be missing without a cause."""
    return SLACK_TOKENS + SLACK_SHARE * tokens
