"""The one line that is said of words that no command takes."""

from __future__ import annotations

import click

from pykbroker.config.nearest import nearest


def said_of_usage(error: click.ClickException) -> str:
    """What is wrong with the words, and where the right ones are."""
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context is not None:
        # In the words of an unknown command; those of click differ between its versions.
        known = [name for parameter in context.command.get_params(context) for name in parameter.opts]
        meant = nearest(error.option_name, known)
        text = f"No such option '{error.option_name}'." + (f" Did you mean '{meant}'?" if meant else "")
    if context is None:
        return text
    end = "" if text.endswith((".", "?", ")")) else "."
    return f"{text}{end} Try '{context.command_path} --help'."
