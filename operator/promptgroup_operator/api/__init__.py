"""The PromptGroup that users write, as pydantic models, and the CustomResourceDefinitions made from them.

Does no I/O and reads no clock.
"""
