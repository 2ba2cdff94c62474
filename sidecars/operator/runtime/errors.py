"""The error by which a pass reports that it can't act on a custom resource."""


class NotUsableError(Exception):
    """A custom resource can't be acted upon yet. `reason` and the text become its condition `Ready`.

    `retried`: no event wakes the custom resource when the obstacle disappears, so the queue must retry it.
    """

    retried = False

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
