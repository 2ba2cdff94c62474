"""The error that a user reads in the output of the job."""


class ContainerError(Exception):
    """Why the container can't start: what was asked for, what is wrong with it, and the remedy, in
    one line or few.
    """
