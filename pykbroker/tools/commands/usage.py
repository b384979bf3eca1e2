"""The one-line error for words that no command takes, with our own word for an option of kcat or of Kafka's tools."""

from __future__ import annotations

from typing import Final

import click

from pykbroker.config.nearest import nearest

_CHOSEN_BY_NAME: Final = "The command's name says it already."
#: command -> an option of kcat or of Apache Kafka's tools -> what does the same here
_HABITS: Final = {
    "consume": {
        "-C": _CHOSEN_BY_NAME,
        "-e": "A read ends at the end of the topic without it, and --follow goes on.",
        "-G": "--group ID reads as a member of a group.",
        "-q": "Nothing but records is printed.",
        "-u": "Output is never held back.",
        "--from-beginning": "A read begins at the beginning, unless --from says otherwise.",
        "--max-messages": "-c N ends after N records.",
        "--offset": "--from OFFSET says where to begin.",
    },
    "produce": {"-P": _CHOSEN_BY_NAME},
    "topics create": {"--set": "-c KEY=VALUE sets a configuration."},
    "topics alter": {"--set": "-c KEY=VALUE sets a configuration."},
    "configs alter": {
        "-c": "--set KEY=VALUE sets a configuration.",
        "--config": "--set KEY=VALUE sets a configuration.",
        "--add-config": "--set KEY=VALUE sets a configuration.",
        "--delete-config": "--delete KEY takes a configuration away.",
    },
}


def said_of_usage(error: click.ClickException) -> str:
    """Return the error of a command line, and the command that shows its help."""
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if context is None:
        return text
    if isinstance(error, click.NoSuchOption):
        # The text has the same form as for an unknown command. click's own text differs between its versions.
        text = f"No such option '{error.option_name}'. {_meant(error.option_name, context)}".rstrip()
    elif isinstance(error, click.BadParameter) and _path(context) == "consume" and _is_output(error.param):
        text = f"{text.rstrip('.')}; --from says where to begin."
    end = "" if text.endswith((".", "?")) else "."
    return f"{text}{end} Try '{context.command_path} --help'."


def _meant(option: str, context: click.Context) -> str:
    """Return a sentence about an unknown option, or an empty text."""
    habit = _HABITS.get(_path(context), {}).get(option)
    if habit is not None:
        return habit
    command = context.command
    if isinstance(command, click.Group) and (verb := option.lstrip("-")) in command.list_commands(context):
        return f"Did you mean '{context.command_path} {verb}'?"
    if option in ("-t", "--topic") and any(_is_topic(parameter) for parameter in command.params):
        return f"The topic needs no option: {context.command_path} TOPIC."
    meant = nearest(option, [name for parameter in command.get_params(context) for name in parameter.opts])
    return f"Did you mean '{meant}'?" if meant else ""


def _path(context: click.Context) -> str:
    """Return the words of a command without the program's name."""
    return context.command_path.partition(" ")[2]


def _is_topic(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Argument) and "TOPIC" in (parameter.metavar or str(parameter.name).upper())


def _is_output(parameter: click.Parameter | None) -> bool:
    return parameter is not None and parameter.name == "output"
