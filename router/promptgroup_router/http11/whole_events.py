"""Holds the end of a stream back until its event is whole."""

from typing import Final

EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
"""The empty lines that end an event (HTML standard, section 9.2.6), as engines write them."""
MOST_HELD = 1 << 20
"""Most bytes of an event that are held until it is whole; a longer one is handed on in parts."""
_OVERLAP = max(map(len, EVENT_ENDS)) - 1


class WholeEvents:
    """The whole events of a stream, which arrives in arbitrary parts. It takes linear time."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def empty(self) -> bool:
        """True if nothing is held."""
        return not self._held

    def feed(self, content: bytes) -> bytes:
        """Add a part of the stream.

        Returns:
            The buffered bytes up to the end of the last whole event; all of them if an event is too long.
        """
        held = self._held
        if not held and content.endswith(b"\n\n"):
            return content
        seen = max(len(held) - _OVERLAP, 0)
        held += content
        cut = max(at + len(end) if (at := held.rfind(end, seen)) >= 0 else 0 for end in EVENT_ENDS)
        if len(held) - cut > MOST_HELD:
            cut = len(held)
        whole = bytes(held[:cut]) if cut else b""
        del held[:cut]
        return whole

    def finish(self) -> bytes:
        """Return what is left of the stream."""
        left = bytes(self._held)
        self._held.clear()
        return left
