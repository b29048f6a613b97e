"""LoRA adapters: their names and paths in engines, the settings that prevent them, and those that engines shall unload.

Does no I/O and reads no clock.
"""
