"""How a pass can end without finishing. Handlers map each to when to look again, once."""


class ClusterError(Exception):
    """The API server could not be reached or refused: the pass is tried again."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status, None when there was no answer."""
        self.retry_after = retry_after
        """Seconds that the server asked to wait."""


class NotLeadingError(ClusterError):
    """Another process leads, or may: nothing was sent."""

    def __init__(self) -> None:
        super().__init__("this process does not lead")


class EngineError(Exception):
    """An engine could not be asked, or its answer is no use."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status, None when there was no answer."""
