# Sessions in the shared root of jobs. The entrypoints of slurmd and login source it.

# Has sshd mount the jail for each connection, if the pod has the volume. ChrootDirectory of the pod's sshd_config is the empty
# folder on which it is mounted, so that a session without the module has an empty root.
jail_sessions() {
  local pam=/etc/pam.d/sshd volume=/var/lib/slurm-jail at=/var/lib/slurm-jail-session
  if mountpoint -q "$volume"; then
    mkdir -p "$at"
    if ! grep -q pam_slurm_jail.so "$pam"; then
      echo "session    required     /usr/local/lib/slurm-containers/pam_slurm_jail.so root=$volume at=$at" >>"$pam"
    fi
  fi
}
