"""sidecars.ldap with a real directory."""
