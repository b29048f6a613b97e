"""Estimates the tokens of a text from the lengths that engines report. Does no I/O and reads no clock.

Placement needs lengths to within a few percent, and tokenising a prompt costs more than routing it. Tokens per byte
differ by model and by content: 0.2 to 0.25 for English, 0.3 to 0.5 for code, Chinese and JSON. Each model has one
ratio: the sum of tokens over the sum of bytes, in which older answers weigh less.
"""

FIRST = 0.25
"""Tokens per byte before anything was learned."""
FIRST_BYTES = 16_384
"""Weight of that ratio, in bytes: a few answers outweigh it, one does not."""
WINDOW_BYTES = 4 << 20
"""Sum of bytes at which both sums are halved: some thousand answers, minutes of one group's traffic."""
MOST_BYTES = WINDOW_BYTES // 64
"""Most bytes that one answer counts for: a single long text is no sample of a model's traffic."""
LEAST, MOST = 1 / 32, 1.5
"""Ratios beyond these are ignored, since they do not describe the text: a template's own words around a short message,
the tokens of an image, invented figures. Tokenisers of bytes need one token per byte at most."""
MODELS = 256
"""Most models whose values are stored; a table has a few."""


class _Sums:
    """The texts of one model, as far as they were learned from."""

    __slots__ = ("text", "tokens")

    def __init__(self) -> None:
        self.text = float(FIRST_BYTES)
        """Bytes."""
        self.tokens = FIRST_BYTES * FIRST


class Tokens:
    """The tokens per byte of each model."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}
        """Sums by model."""

    def per_byte(self, model: str) -> float:
        """Return the tokens per byte of text for the model."""
        sums = self._sums.get(model)
        return sums.tokens / sums.text if sums is not None else FIRST

    def learn(self, model: str, text: int, tokens: int) -> None:
        """Learn from a prompt of `text` bytes for which an engine counted `tokens`; 0 bytes are ignored."""
        if text <= 0 or not LEAST <= tokens / text <= MOST:
            return
        sums = self._sums.get(model)
        if sums is None:
            if len(self._sums) >= MODELS:
                del self._sums[next(iter(self._sums))]
            sums = self._sums[model] = _Sums()
        keep = 0.5 if sums.text > WINDOW_BYTES else 1.0
        share = MOST_BYTES / text if text > MOST_BYTES else 1.0
        sums.text = sums.text * keep + text * share
        sums.tokens = sums.tokens * keep + tokens * share
