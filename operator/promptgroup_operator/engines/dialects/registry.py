"""Every engine that `spec.engine.type` can name."""

from collections.abc import Mapping

from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.tensorrt_llm import TENSORRT_LLM
from promptgroup_operator.engines.dialects.vllm import VLLM

DIALECTS: Mapping[EngineType, Dialect] = {
    EngineType.VLLM: VLLM,
    EngineType.SGLANG: SGLANG,
    EngineType.TENSORRT_LLM: TENSORRT_LLM,
}
