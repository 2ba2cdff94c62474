"""What ends a run: the place, the value and the remedy."""


class PostrenderError(Exception):
    """A stream, a configuration or an object that can't be worked on. Nothing is written to stdout.

    `message` may quote anything and is shown on one line. `detail`: lines below it, in which
    nothing is quoted raw.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(f"{message}\n{detail}" if detail else message)
        self.message, self.detail = message, detail


class YamlError(PostrenderError):
    """Text that is no YAML of Kubernetes. `line`: counted from 1 within the text."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem
