# The hub may submit, list and end jobs as other users, and neither as root nor as SlurmUser. batchspawner uses `sudo -E`.
useradd --system --uid 64031 --user-group --no-create-home --home-dir /srv/jupyterhub --shell /usr/sbin/nologin jupyterhub
cat >/etc/sudoers.d/jupyterhub <<'END'
Defaults:jupyterhub !syslog, !pam_session
jupyterhub ALL=(ALL, !root, !slurm) NOPASSWD:SETENV: /usr/bin/sbatch, /usr/bin/squeue, /usr/bin/scancel
END
chmod 440 /etc/sudoers.d/jupyterhub
visudo --check --quiet
