"""Exit codes, the same for every command; `weighbridge --help` tells them."""

from __future__ import annotations

from connectors.errors import ConfigurationError, InfrastructureError

EXIT_USAGE, EXIT_STOPPED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 2, 3, 4, 130


def exit_code(error: BaseException) -> int:
    """The exit code an error ends a command with."""
    if isinstance(error, ConfigurationError):
        return EXIT_USAGE
    if isinstance(error, InfrastructureError):
        return EXIT_UNREACHABLE
    return EXIT_STOPPED
