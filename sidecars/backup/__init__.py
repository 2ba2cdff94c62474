"""The role `backup`: copies of slurmctld's state and of the accounting database on a volume, and
the way back.

    VOLUME/2026-11-24T023000Z/backup.json       what the backup contains: size and SHA-256 of each
    file VOLUME/2026-11-24T023000Z/state.tar.gz      the files of StateSaveLocation
    VOLUME/2026-11-24T023000Z/database.sql.gz   the dump of the accounting database, with accounting
    VOLUME/.unfinished-POD/                     a backup that isn't complete

A folder with a date is complete: it gets its name when all its files are on the disk. The same
folders can be in an S3-compatible store.
"""
