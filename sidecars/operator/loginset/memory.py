"""What is remembered of LoginSets from pass to pass."""

from sidecars.operator.runtime.queues import Key

Memory = dict[Key, str]
"""By LoginSet: the digest of sshd's configuration that its pods were last annotated with, or that
was seen first.
"""
