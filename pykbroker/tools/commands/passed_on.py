"""Adds the commands of pykbroker/entry to this tree. Their own parsers parse the words and print the help.

Responsible for the parameters that the program's help, the completion of a shell and docs/cli.md read.
"""

from __future__ import annotations

import argparse
from typing import Any

import click

from pykbroker.entry.command_parser import CommandParser
from pykbroker.entry.own_commands import own_command
from pykbroker.tools.commands.command_group import Command


class PassedOnCommand(Command):
    """A command of pykbroker/entry. It has the parameters of its parser, for code that inspects click's parameters."""

    def __init__(self, name: str) -> None:
        self._own = own_command(name)
        self._parser = self._own.parser()
        super().__init__(
            name,
            params=click_parameters(self._parser),
            help=self._parser.description,
            example=self._parser.example,
            add_help_option=False,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params = vars(self._parser.parse(args))
        return []

    def invoke(self, ctx: click.Context) -> int:
        return self._own.run(argparse.Namespace(**ctx.params))

    def get_help(self, ctx: click.Context) -> str:
        return self._parser.format_help().rstrip("\n")


def click_parameters(parser: CommandParser) -> list[click.Parameter]:
    """Return the arguments of a parser as click's parameters."""
    return [_parameter(action) for action in parser.arguments() if "--help" not in action.option_strings]


def _parameter(action: argparse.Action) -> click.Parameter:
    if not action.option_strings:
        return click.Argument([action.dest], required=False, metavar=str(action.metavar))
    names = [*action.option_strings, action.dest]
    if action.nargs == 0:
        return click.Option(names, is_flag=True, help=action.help)
    settings: dict[str, Any] = {"multiple": True} if isinstance(action.default, list) else {"default": action.default}
    return click.Option(names, metavar=str(action.metavar), help=action.help, **settings)
