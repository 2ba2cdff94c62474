"""Entry point of the sidecars image: `slurm-sidecars ROLE [options]`.

Only the chosen role is imported, because the roles in worker pods can't afford what the operator needs.
"""

import sys
from collections.abc import Sequence

ROLES = (
    *("operator", "register", "node", "reconfigure", "release"),
    *("simulate", "doctor", "exporter", "plugin", "secrets", "backup", "bridge", "webhook", "logs", "checks", "ldap"),
)
_USAGE = f"usage: slurm-sidecars {{{','.join(ROLES)}}} [options]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the role that the first argument names with the rest; returns the exit status (2 for a wrong role)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    role = arguments[0] if arguments else ""
    if role in ("-h", "--help"):
        print(_USAGE)
        return 0
    if role == "operator":
        from sidecars.operator.main import main as run_operator

        return run_operator(arguments[1:])
    if role == "register":
        from sidecars.register.main import main as run_register

        return run_register(arguments[1:])
    if role == "node":
        from sidecars.node.main import main as run_node

        return run_node(arguments[1:])
    if role == "reconfigure":
        from sidecars.reconfigure.main import main as run_reconfigure

        return run_reconfigure(arguments[1:])
    if role == "release":
        from sidecars.release.main import main as run_release

        return run_release(arguments[1:])
    if role == "simulate":
        from sidecars.simulate.main import main as run_simulate

        return run_simulate(arguments[1:])
    if role == "doctor":
        from sidecars.doctor.main import main as run_doctor

        return run_doctor(arguments[1:])
    if role == "exporter":
        from sidecars.exporter.main import main as run_exporter

        return run_exporter(arguments[1:])
    if role == "plugin":
        from sidecars.explain.plugin import main as run_plugin

        return run_plugin(arguments[1:])
    if role == "secrets":
        from sidecars.secrets.main import main as run_secrets

        return run_secrets(arguments[1:])
    if role == "backup":
        from sidecars.backup.main import main as run_backup

        return run_backup(arguments[1:])
    if role == "bridge":
        from sidecars.bridge.main import main as run_bridge

        return run_bridge(arguments[1:])
    if role == "webhook":
        from sidecars.bridge.webhook import main as run_webhook

        return run_webhook(arguments[1:])
    if role == "logs":
        from sidecars.logs.main import main as run_logs

        return run_logs(arguments[1:])
    if role == "checks":
        from sidecars.checks.main import main as run_checks

        return run_checks(arguments[1:])
    if role == "ldap":
        from sidecars.ldap.main import main as run_ldap

        return run_ldap(arguments[1:])
    fault = f"unknown role {role!r}" if role else "no role given"
    print(f"slurm-sidecars: {fault}; roles are {', '.join(ROLES)}\n{_USAGE}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
