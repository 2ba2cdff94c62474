"""What Helm prints besides its result."""

LINK = "found symbolic link in path"


def warnings(printed: str) -> list[str]:
    """The lines of its standard error, without those about subcharts and shared templates, which
    are links in the repository.
    """
    return [line for line in printed.splitlines() if line.strip() and LINK not in line]
