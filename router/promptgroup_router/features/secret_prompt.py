"""Restricts requests to engines that get a prompt from a Secret, and the errors that their clients get.

A request that names a group never shows the group's prompt to its client. What would make an engine repeat the prompt,
or its tokens, is refused of a prompt from a Secret:

- fields that ask for it, with the field named;
- the Responses API: its answers hold `instructions` and `tools` as they were sent, whole, in three events of a stream
  and when they are read again, and OpenAI's API lists the items of an input by `input_items`;
- the tokens of a chat, by `/tokenize`.

Engines' own errors are replaced, whatever they say: FastAPI's validation, which all engines use, repeats the value at
fault, and for rules about several fields that is the whole body (vLLM's issue 49239 has an example). A model can still
be talked into saying its instructions; no rule can prevent that.
"""

from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from promptgroup_contract.table import Revision
from promptgroup_router.apis.request import ApiKind, ParsedRequest
from promptgroup_router.base.errors import SHOWN, ApiError, shown
from promptgroup_router.routing.points import RequestFeature
from promptgroup_router.routing.process_points import GroupFeature

REPEATING_FIELDS = (
    "echo",  # OpenAI completions, vLLM's chat completions
    "prompt_logprobs",  # vLLM: 0 lists the tokens of the prompt too
    "logprob_start_len",  # SGLang: from where on tokens are listed
    "top_logprobs_num",  # SGLang, with logprob_start_len
    "token_ids_logprob",  # SGLang
    "kv_transfer_params",  # vLLM: who names blocks may fetch them
    "vllm_xargs",  # vLLM: arguments of plugins
    "chat_template",  # vLLM, TensorRT-LLM: a template may show the messages in what it raises
    "enable_response_messages",  # vLLM: the messages of a response
    "previous_input_messages",  # vLLM: the same of the one before
)
"""Fields that make an engine repeat its prompt, or return data computed from it."""
RETURNING = "return_"
"""The beginning of fields that return data beside the answer. vLLM has `return_token_ids` and `return_prompt_text`,
SGLang `return_prompt_token_ids`, `return_hidden_states`, `return_meta_info` and others, TensorRT-LLM
`return_prompt_token_ids_b64`; later releases will have more."""
HARMLESS = ("return_tokens_as_token_ids", "return_cached_tokens_details")
"""Those of them that reveal nothing of the prompt's text."""

_ASKS_FOR_TOKENS = b"x-sglext-"
"""SGLang: `x-sglext-return-input-ids` hands out the tokens of the prompt, and the others are made for it."""
_STATUSES = frozenset(map(int, HTTPStatus))


class SecretPrompt(RequestFeature):
    """The prompt from a Secret that was put in front of a request."""

    __slots__ = ()

    def engine_fields(self, allowed: frozenset[bytes]) -> frozenset[bytes]:
        """Return the allowed fields without those that ask an engine for the tokens of its prompt."""
        return without_token_fields(allowed)

    def error_for(self, status: int) -> ApiError:
        """Return the error in place of the engine's own."""
        return engine_refused(status)


class SecretGroup(GroupFeature):
    """A revision whose prompt is from a Secret."""

    def __init__(self, revision: Revision) -> None:
        """Protect the prompt of a revision."""
        self._revision = revision

    def by_name(self, request: ParsedRequest, *, cached: bool) -> RequestFeature | None:
        """Return the feature of a request that gets the prompt; raises ApiError if an engine would repeat it."""
        check_by_name(request, self._revision, cached=cached)
        return SecretPrompt() if is_given_secret(request, self._revision) else None


@lru_cache(256)
def without_token_fields(allowed: frozenset[bytes]) -> frozenset[bytes]:
    """Return names of header fields, in lower case, without those that ask for the tokens of the prompt."""
    return frozenset(name for name in allowed if not name.startswith(_ASKS_FOR_TOKENS))


def is_given_secret(request: ParsedRequest, revision: Revision) -> bool:
    """Return True if a prompt from a Secret is put in front of a request by name.

    Embeddings, scores and their like get none; their `return_documents` hands out what the client has sent.
    """
    return revision.is_secret and request.kind not in (ApiKind.BY_MODEL, ApiKind.FORM)


def repeating_field(doc: Mapping[str, Any]) -> str | None:
    """Return a field of a body that makes an engine repeat its prompt, with at most SHOWN characters; None for none."""
    for name in REPEATING_FIELDS:
        if _is_set(doc.get(name)):
            return name
    for name, value in doc.items():
        if name.startswith(RETURNING) and _is_set(value) and name not in HARMLESS:
            return name[:SHOWN]
    return None


def _is_set(value: object) -> bool:
    return value is not None and value is not False


def check_by_name(request: ParsedRequest, revision: Revision, *, cached: bool) -> None:
    """Check that a request by name does not make an engine repeat a secret prompt.

    Args:
        request: the request.
        revision: the revision whose prompt is put in front of it.
        cached: False for requests that leave nothing in a cache; of chats these ask for the prompt's tokens.

    Raises:
        ApiError: 400: it does; the error names the field.
    """
    if not is_given_secret(request, revision):
        return
    way = "send a prompt of your own"
    field = repeating_field(request.doc)
    if field is not None:
        subject, way = f"{field} makes the engine repeat its prompt", f"leave it out, or {way}"
    elif request.kind is ApiKind.RESPONSES:
        field, subject = "model", "answers of the Responses API repeat their instructions"
        way = f"use /v1/chat/completions, or {way}"
    elif not cached and request.kind is ApiKind.CHAT:
        field, subject = "model", "the tokens of a chat tell its prompt"
    else:
        return
    message = f"{subject}, and the prompt of {shown(request.model)} is secret: {way}"
    raise ApiError(400, message, param=field, code="secret_prompt")


def engine_refused(status: int) -> ApiError:
    """Return the error that a client gets in place of an engine's own, which may repeat the secret prompt.

    Args:
        status: of the engine's answer, 400 or more.
    """
    message = f"the engine answered with {status}, and its words are not shown, since they may repeat a secret prompt"
    way = "check the fields of the request; with a prompt of your own the same request shows them"
    return ApiError(status if status in _STATUSES else 502, f"{message}: {way}", code="engine_error")
