"""The one-line error for words that no command takes."""

from __future__ import annotations

import click

from pykbroker.config.nearest import nearest


def said_of_usage(error: click.ClickException) -> str:
    """Return the error of a command line, and the command that shows its help."""
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context is not None:
        # The text has the same form as for an unknown command. click's own text differs between its versions.
        known = [name for parameter in context.command.get_params(context) for name in parameter.opts]
        meant = nearest(error.option_name, known)
        text = f"No such option '{error.option_name}'." + (f" Did you mean '{meant}'?" if meant else "")
    if context is None:
        return text
    end = "" if text.endswith((".", "?")) else "."
    return f"{text}{end} Try '{context.command_path} --help'."
