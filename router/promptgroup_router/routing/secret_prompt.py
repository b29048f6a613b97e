"""Decides what a request may ask of an engine that is given a prompt from a Secret.

A request that names a group never shows the group's prompt to its client. Some fields make an engine repeat the prompt,
or its tokens: of a prompt from a Secret they are refused, with the field named. A model can still be talked into
saying its instructions; no field can prevent that. Does no I/O and reads no clock.
"""

from promptgroup_router.apis.request import ApiKind, ParsedRequest
from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.contract.table import Revision

REPEATING_FIELDS = (
    "echo",  # OpenAI completions, vLLM's chat completions
    "prompt_logprobs",  # vLLM: 0 lists the tokens of the prompt too
    "return_token_ids",  # vLLM
    "return_prompt_token_ids",  # SGLang
    "return_hidden_states",  # SGLang
    "return_text_in_logprobs",  # SGLang
    "logprob_start_len",  # SGLang: from where on tokens are listed
    "top_logprobs_num",  # SGLang, with logprob_start_len
    "token_ids_logprob",  # SGLang
    "kv_transfer_params",  # vLLM: who names blocks may fetch them
    "vllm_xargs",  # vLLM: arguments of plugins
)
"""Fields that make an engine repeat its prompt, or hand out what was computed of it."""

COARSE_BYTES = 256
"""Offsets in a secret prompt are rounded down to this: exact ones would tell a guesser each byte that is right."""


def is_secret(revision: Revision) -> bool:
    """Return True if a revision's prompt comes from a Secret."""
    return revision.prompt_from is not None and revision.prompt_from.kind == "Secret"


def check_by_name(ask: ParsedRequest, revision: Revision, *, cached: bool) -> None:
    """Check that a request by name does not make an engine repeat a secret prompt.

    Args:
        ask: the request.
        revision: the revision whose prompt is put in front of it.
        cached: False for requests that leave nothing in a cache; of chats these ask for the prompt's tokens.

    Raises:
        ApiError: 400: it does; the error names the field.
    """
    if not is_secret(revision):
        return
    given = {name: ask.doc.get(name) for name in REPEATING_FIELDS}
    field = next((name for name, value in given.items() if value is not None and value is not False), None)
    if field is not None:
        what, way = f"{field} makes the engine repeat its prompt", "leave it out, or send a prompt of your own"
    elif not cached and ask.kind is ApiKind.CHAT:
        field, what, way = "model", "the tokens of a chat tell its prompt", "send a prompt of your own"
    else:
        return
    message = f"{what}, and the prompt of {shown(ask.model)} is secret: {way}"
    raise ApiError(400, message, param=field, code="secret_prompt")


def offset(at: int, revision: Revision) -> int:
    """Return an offset into a prompt, in bytes, in the precision in which it may be told."""
    return at - at % COARSE_BYTES if is_secret(revision) else at
