"""The body of a request as a gateway sends it, within the memory that all calls share."""

from promptgroup_router.base.errors import ApiError
from promptgroup_router.proxy.body_budget import BodyBudget


class CallBody:
    """The body of one request, and the memory that it and the request's header fields take."""

    __slots__ = ("_budget", "_coming", "_head", "_most", "_parts", "_size", "whole")

    def __init__(self, budget: BodyBudget, most: int) -> None:
        """Begin with nothing.

        Args:
            budget: of all calls.
            most: most bytes of a body.
        """
        self._budget = budget
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0
        """Bytes of the body, taken from the budget."""
        self._head = 0
        """Memory of the header fields, taken from the same budget."""
        self._coming = 0
        """Bytes of a large message that is not whole yet, taken from the same budget."""
        self.whole = b""
        """The body as received, once it is whole."""

    def take_head(self, size: int) -> bool:
        """Take memory for the header fields. Return False if there is none."""
        if not self._budget.take(size, size):
            return False
        self._head = size
        return True

    def expect(self, size: int, beside: int) -> ApiError | None:
        """Reserve the memory of a message with a part of the body before it arrives; return the error if it is refused.

        Args:
            size: bytes of the message.
            beside: bytes that it may have beside the part of the body.
        """
        problem = self._take(size, self._size + size, self._size + size - beside)
        if problem is None:
            self._coming = size
        return problem

    def expect_other(self, size: int) -> bool:
        """Reserve the memory of another large message before it arrives. Return False if there is none."""
        if not self._budget.take(size, size):
            return False
        self._coming = size
        return True

    def came(self) -> None:
        """Release the memory that was reserved before a message arrived: its parts are counted by themselves."""
        self._budget.give_back(self._coming)
        self._coming = 0

    def add(self, part: bytes) -> ApiError | None:
        """Add a part of the body; return the error if there is no memory for it."""
        size = self._size + len(part)
        problem = self._take(len(part), size, size)
        if problem is None:
            self._size = size
            self._parts.append(part)
        return problem

    def join(self) -> None:
        """Make the body whole."""
        self.whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()

    def free(self) -> None:
        """Give back all memory of the head and the body, which the gateway has."""
        self._budget.give_back(self._size + self._head)
        self._size = self._head = 0
        self.whole = b""

    def drop(self) -> None:
        """Give back everything: the call is over."""
        self.free()
        self.came()
        self._parts.clear()

    def _take(self, more: int, size: int, body: int) -> ApiError | None:
        if body > self._most:
            text = f"the body has more than {self._most} bytes (--max-body-bytes): send less"
            return ApiError(413, text, code="body_too_large")
        if not self._budget.take(more, size):
            return ApiError(503, "the picker has no memory for another body: retry", code="body_memory")
        return None
