# Debian's plugstack.conf includes a folder of Debian's files. Slurm must read only the files that the pod mounts.
rm -rf /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.d
mkdir -p /etc/slurm /var/log/slurm /var/spool/slurmctld /var/spool/slurmd
chown slurm:slurm /var/log/slurm /var/spool/slurmctld
rm -rf /var/lib/slurm
