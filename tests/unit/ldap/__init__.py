"""Tests of sidecars.ldap."""
