"""Brings the users and groups of an LDAP directory into a Secret, from which the operator brings
them into all pods.
"""
