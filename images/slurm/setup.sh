# Debian's plugstack.conf includes a folder of Debian's files. Slurm must read only the files that the pod mounts.
rm -rf /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.d
mkdir -p /etc/slurm /var/log/slurm /var/spool/slurmctld /var/spool/slurmd
chown slurm:slurm /var/log/slurm /var/spool/slurmctld
rm -rf /var/lib/slurm
# Users and groups that the pod mounts at /var/lib/extrausers, after those of the image. Without the mount, none exist.
sed -i 's/^\(passwd\|group\):.*/& extrausers/' /etc/nsswitch.conf
[ "$(grep -c '^\(passwd\|group\):.* extrausers$' /etc/nsswitch.conf)" = 2 ]
