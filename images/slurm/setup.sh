# Debian's plugstack.conf includes a folder of files of its own; what Slurm reads here is what the pod mounts.
rm -rf /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.d
mkdir -p /etc/slurm /var/log/slurm /var/spool/slurmctld /var/spool/slurmd
chown slurm:slurm /var/log/slurm /var/spool/slurmctld
rm -rf /var/lib/slurm
