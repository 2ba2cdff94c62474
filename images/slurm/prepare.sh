# SchedMD's images have slurm as 401; Debian's packages would make it 64030, unless it is there.
groupadd --system --gid 401 slurm
useradd --system --uid 401 --gid slurm --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin slurm
