"""The errors by which a pass reports that it can't act on a custom resource."""

from sidecars.policy.reasons import Ready


class NotUsableError(Exception):
    """A custom resource can't be acted upon yet. `reason` and the text become its condition
    `Ready`.

    `retried`: no event wakes the custom resource when the obstacle disappears, so the queue must
    retry it.
    """

    retried = False

    def __init__(self, reason: Ready, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RefusedError(NotUsableError):
    """The API server refuses an object: its contents, or by a quota, right or policy, which may
    change.
    """

    retried = True

    def __init__(self, kind: str, name: str, error: Exception) -> None:
        super().__init__(Ready.REFUSED, f"the API server refuses {kind} {name}: {error}")
