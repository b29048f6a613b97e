"""The LoRA adapters of the stand-in engine."""
