# The pod mounts its host keys, or creates them at its start. It also mounts sshd_config; without one, slurmd runs no sshd.
rm -f /etc/ssh/ssh_host_* /etc/ssh/sshd_config
# In a container the audit login uid can't be set, and every login would fail.
sed -i 's/^\(session *\)required\( *pam_loginuid.so\)/\1optional\2/' /etc/pam.d/sshd
