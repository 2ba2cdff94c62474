# Home directories of declared users. The entrypoints of slurmd and login source it.

# Has sshd create a missing home directory at login, if the pod mounts declared users. It is optional: a file server may
# refuse root, and a user without a home directory can still log in.
create_homes_at_login() {
  local pam=/etc/pam.d/sshd
  if mountpoint -q /var/lib/extrausers && ! grep -q pam_mkhomedir.so "$pam"; then
    echo 'session    optional     pam_mkhomedir.so umask=0077' >>"$pam"
  fi
}
