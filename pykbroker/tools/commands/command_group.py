"""Commands and groups of commands, on click: examples in the help, the nearest name for a misspelt one, late imports.

Responsible for finding a command, and for its help. Not responsible for the output of failures (main.py).

Invariant: a command's module is imported only when the command runs or its own help is shown. The help of the program
and the completion of its commands import no module of a command.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from pykbroker.config.nearest import nearest
from pykbroker.entry.own_commands import OWN_COMMANDS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


#: Short names that people know from a shell, and the verbs that a group may have for them.
_SHORT_VERBS: Final = {"ls": ("list",), "rm": ("delete", "remove")}


class Command(click.Command):
    """A command that shows an example of its use."""

    def __init__(self, *arguments: Any, example: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        #: one command line, or several on lines of their own
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(formatter, self.example)
        super().format_epilog(ctx, formatter)


class CommandGroup(click.Group):
    """A command whose name is a noun, and whose subcommands are verbs. Without a verb it prints its help and exits with
    0. `ls` and `rm` are taken for the verbs that they stand for."""

    command_class = Command
    group_class = type

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"no_args_is_help": False, **settings})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        meant = next((verb for verb in _SHORT_VERBS.get(cmd_name, ()) if verb in self.commands), cmd_name)
        return super().get_command(ctx, meant)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing and not self.invoke_without_command:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        meant = nearest(name, self.list_commands(ctx))
        known = f"Did you mean '{meant}'?" if meant else f"There are {', '.join(self.list_commands(ctx))}."
        raise click.UsageError(f"No such command '{name}'. {known}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(self.commands[name])) for name in self.commands])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the source, where the most used commands come first."""
        return list(self.commands)


class Program(CommandGroup):
    """The program, with the commands of `sections` and `hidden`. Each command is in the module of its name, or in
    pykbroker/entry."""

    def __init__(
        self,
        *arguments: Any,
        sections: Mapping[str, Mapping[str, str]],
        hidden: Collection[str] = (),
        **settings: Any,
    ) -> None:
        """`sections`: heading -> name of a command -> its description in one line. `hidden`: commands that no list
        shows."""
        super().__init__(*arguments, **settings)
        self.sections = sections
        self.hidden_commands = hidden

    def summaries(self) -> Iterator[tuple[str, str]]:
        for commands in self.sections.values():
            yield from commands.items()

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, _ in self.summaries()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = (*self.list_commands(ctx), *self.hidden_commands)
        if cmd_name not in known:
            # A noun in the singular or in the plural means the same command.
            other = cmd_name.removesuffix("s") if cmd_name.endswith("s") else f"{cmd_name}s"
            return self.get_command(ctx, other) if other in known else None
        if cmd_name in OWN_COMMANDS:
            from pykbroker.tools.commands.passed_on import PassedOnCommand

            return PassedOnCommand(cmd_name)
        found: click.Command = import_module(f"pykbroker.tools.commands.{cmd_name.replace('-', '_')}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in self.summaries() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def summary(command: click.Command) -> str:
    """Return the first line of a command's help."""
    return (command.help or "").partition("\n")[0]


def write_example(formatter: click.HelpFormatter, example: str) -> None:
    if example:
        with formatter.section("Example"):
            # The lines of an example are not wrapped, so that a user can copy them.
            for line in example.splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}$ {line}\n")


def excluding(ctx: click.Context, *options: str) -> None:
    """Refuse a command line that has more than one of these options. `options`: names of click's parameters."""
    from click.core import ParameterSource

    given = [name for name in options if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if len(given) > 1:
        # The name of a parameter may differ from its option's.
        words = {parameter.name: max(parameter.opts, key=len) for parameter in ctx.command.params}
        first, second = (words[name] for name in given[:2])
        raise click.UsageError(f"{first} does not go with {second}.", ctx)
