"""What a watch of pods has shown, once it is over."""

import json
from datetime import datetime
from typing import Any


class PodWatch:
    """`history`: the pods as they were at first and after each change, in the API server's order.

    `deletion_asked`: when each was asked to go: pod name → metadata.deletionTimestamp less its
    grace, as epoch seconds.
    """

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self.deletion_asked: dict[str, float] = {}

    def read(self, text: str) -> None:
        """Take in a stream of watch events."""
        decoder, position = json.JSONDecoder(), 0
        while position < len(text):
            if text[position].isspace():
                position += 1
                continue
            try:
                event, position = decoder.raw_decode(text, position)
            except ValueError:
                return  # the last event was cut off when the watch ended
            self.history.append(event["object"])
            metadata = event["object"]["metadata"]
            if metadata.get("deletionTimestamp"):
                grace = metadata.get("deletionGracePeriodSeconds") or 0
                asked = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp() - grace
                self.deletion_asked[metadata["name"]] = min(
                    asked, self.deletion_asked.get(metadata["name"], asked)
                )
