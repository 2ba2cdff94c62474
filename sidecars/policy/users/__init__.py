"""The users and groups of the operating system that a Controller declares for its pods."""
