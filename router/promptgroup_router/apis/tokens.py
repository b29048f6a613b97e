"""How many tokens a text has: an estimate, by what engines say about the prompts that they were sent. Pure, bounded.

Placement needs lengths to within a few percent, and tokenising a prompt costs more than routing it. Tokens a byte
differ by model and by what is written: 0.2 to 0.25 for English, 0.3 to 0.5 for code, Chinese and JSON. Each model has
one ratio: the sum of tokens over the sum of bytes, the older an answer, the less of it.
"""

FIRST = 0.25
"""Tokens a byte where nothing was learned."""
FIRST_BYTES = 16_384
"""The weight of that, in bytes: a few answers outweigh it, one does not."""
WINDOW_BYTES = 4 << 20
"""Past this half of what was learned is forgotten: some thousand answers, minutes of one group's traffic."""
MOST_BYTES = WINDOW_BYTES // 64
"""One answer counts no more than so many bytes: a single long text is no sample of a model's traffic."""
LEAST, MOST = 1 / 32, 1.5
"""What an engine says beyond these is not about this text: a template's own words around a short message, the tokens
of an image, a stand-in's invented figures. One token a byte is the most that tokenisers of bytes need."""
MODELS = 256
"""Models remembered; a table has a few."""


class Tokens:
    """Tokens a byte, by model."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}
        """Model → bytes, tokens."""

    def per_byte(self, model: str) -> float:
        """Tokens that a byte of text has for the model."""
        known = self._sums.get(model)
        return known[1] / known[0] if known is not None else FIRST

    def learn(self, model: str, text: int, tokens: int) -> None:
        """An engine counted so many tokens where there were so many bytes; nothing is learned from no bytes."""
        if text <= 0 or not LEAST <= tokens / text <= MOST:
            return
        share = min(1.0, MOST_BYTES / text)
        total, counted = self._sums.get(model) or (FIRST_BYTES, FIRST_BYTES * FIRST)
        keep = 0.5 if total > WINDOW_BYTES else 1.0
        if model not in self._sums and len(self._sums) >= MODELS:
            del self._sums[next(iter(self._sums))]
        self._sums[model] = (total * keep + text * share, counted * keep + tokens * share)
