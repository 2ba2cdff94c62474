"""The one error of the local cluster that a user is meant to read."""


class ClusterError(Exception):
    """Reports what is wrong, where, and what to do about it. Shown without a traceback."""
