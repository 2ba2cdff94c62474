# Host keys are the pod's: mounted, or made when it starts. So is sshd_config; slurmd runs sshd only where there is one.
rm -f /etc/ssh/ssh_host_* /etc/ssh/sshd_config
# In a container the audit login uid can't be set, and nobody could log in for it.
sed -i 's/^\(session *\)required\( *pam_loginuid.so\)/\1optional\2/' /etc/pam.d/sshd
