"""Container images in jobs: what oci.conf calls for each task. It imports the standard library
alone.

It runs in slurmd's container as the user of the job, and never as root on behalf of a user.
"""
