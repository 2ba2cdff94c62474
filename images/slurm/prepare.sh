# SchedMD's images have the user slurm with ID 401. Debian's packages would create it with 64030, unless it exists.
groupadd --system --gid 401 slurm
useradd --system --uid 401 --gid slurm --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin slurm
