"""The command line: a verb a module, each option also an environment variable, as `make VERB NAME=value` sets it.

A verb reads what was typed, calls one room, and prints what came out. Modules are imported by the verb that needs them, so
that `--help` and a wrong value cost no second.
"""

import importlib
import os
import sys

import click

from scripts import __version__, surroundings
from scripts.errors import KitError, run_command

#: {verb: the module of scripts/commands that has it}
VERBS = {
    "archive": "images",
    "article": "measure",
    "bench": "measure",
    "build": "images",
    "bundle": "share",
    "compare": "report",
    "demo": "demo",
    "clocks": "demo",
    "images": "images",
    "lock": "pins",
    "models": "models",
    "profile": "measure",
    "publish": "share",
    "rebuild": "images",
    "render": "pins",
    "report": "report",
    "restore": "images",
    "push": "images",
    "pull": "images",
    "sbom": "images",
    "verify": "images",
    "verify-bundle": "share",
}


class Verbs(click.Group):
    """The verbs, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"scripts.commands.{VERBS[cmd_name]}")
        verb: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return verb


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, message="%(version)s")
def command_line() -> None:
    """Rebuild the software of articles on LLM inference, rerun their benchmarks, report what holds.

    Exit codes: 0 done, 1 a job or a step failed, 2 a wrong value was typed, 3 this machine cannot do it, 130 interrupted.
    """


def invoke(arguments: list[str]) -> int:
    """Run a verb and return its exit code; raises KitError and KeyboardInterrupt, prints no traceback for a wrong value."""
    try:
        return command_line.main(arguments, prog_name="python -m scripts", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        raise _wrong(error) from error
    except click.Abort:
        raise KeyboardInterrupt from None


def _wrong(error: click.ClickException) -> KitError:
    """What click found wrong with the line that was typed, as one line of the kit's own."""
    context = getattr(error, "ctx", None)
    again = f"; try: {context.command_path} --help" if context else ""
    found = KitError(f"{error.format_message().rstrip('.')}{again}")
    found.exit_code = error.exit_code
    return found


def main() -> None:
    """Run the verb of the command line, and end the process with its exit code."""
    surroundings.use(os.environ)
    run_command(lambda: invoke(sys.argv[1:]))
