# Declared users in sshd. The entrypoints of slurmd and login source it.

# Has sshd create a missing home directory at login, if the pod mounts declared users. It is optional: a file server may
# refuse root, and a user without a home directory can still log in.
create_homes_at_login() {
  local pam=/etc/pam.d/sshd
  if mountpoint -q /var/lib/extrausers && ! grep -q pam_mkhomedir.so "$pam"; then
    echo 'session    optional     pam_mkhomedir.so umask=0077' >>"$pam"
  fi
}

# Has sshd read its configuration again when other users are declared: it asks them for keys alone, and knows their names from
# when it started. Call it before sshd is started.
follow_declared_users() {
  local users=/var/lib/extrausers seen known now found
  mountpoint -q "$users" || return 0
  seen=$(readlink -f "$users/..data")
  known=$(cksum "$users/sshd.conf" 2>/dev/null)
  while sleep 5; do
    now=$(readlink -f "$users/..data")
    [ "$now" != "$seen" ] || continue
    found=$(cksum "$users/sshd.conf" 2>/dev/null)
    if [ "$found" != "$known" ]; then
      # sshd would end at a configuration that it refuses.
      { /usr/sbin/sshd -t && kill -HUP "$(cat /run/sshd.pid)"; } 2>/dev/null || continue
    fi
    seen=$now known=$found
  done &
}
