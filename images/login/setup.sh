# A shell that isn't a login shell, such as that of `kubectl exec`, doesn't read /etc/profile.d.
cat >>/etc/bash.bashrc <<'END'

if ! shopt -oq posix && [ -r /usr/share/bash-completion/bash_completion ]; then
  . /usr/share/bash-completion/bash_completion
fi
END
