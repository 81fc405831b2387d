"""The command line. Each option of a verb is also an environment variable, as `make VERB NAME=value` sets it.

A verb reads its options, calls one folder of the kit, and prints the outcome. Each verb imports its modules only when it runs, so
`--help` and a message about a wrong value appear at once.
"""

import importlib
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence

import click

from scripts import __version__, surroundings
from scripts.commands import clean
from scripts.errors import KitError, UsageError, run_command
from scripts.machine import locks, signals

#: {module of scripts/commands: its verbs}
MODULES = {
    "calibrate": ("calibrate",),
    "cluster": ("manifest", "status"),
    "demo": ("demo", "clocks"),
    "doctor": ("doctor",),
    "instrument": ("instrument",),
    "images": ("archive", "build", "images", "pull", "push", "rebuild", "restore", "sbom", "verify"),
    "measure": ("article", "bench", "profile"),
    "models": ("lock-models", "models", "verify-models"),
    "pins": ("lock", "render"),
    "report": ("compare", "report"),
    "share": ("bundle", "publish", "verify-bundle"),
}
VERBS = {verb: module for module, verbs in MODULES.items() for verb in verbs}


class Verbs(click.Group):
    """The verbs, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"scripts.commands.{VERBS[cmd_name]}")
        verb: click.Command = getattr(module, cmd_name.replace("-", "_"))
        signals.imported()
        return verb

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name, verb, rest = super().resolve_command(ctx, args)
        if name and verb:
            refuse_unread(ctx.obj or [], name, verb)
        return name, verb, rest


def refuse_unread(typed: list[str], name: str, verb: click.Command) -> None:
    """Raise UsageError for a variable that was typed after `make TARGET` and that the target's verb would ignore."""
    read = [option for option in verb.params if isinstance(option, click.Option) and option.envvar]
    unread = sorted(set(typed) - {str(option.envvar) for option in read})
    if unread:
        allowed = sorted(str(option.envvar) for option in read if not option.hidden)
        takes = f"does not read {unread[0]}, allowed are {', '.join(allowed)}" if allowed else "takes no variables"
        raise UsageError(f"{name} {takes}; leave {unread[0]} out")


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, message="%(version)s")
def command_line() -> None:
    """Rebuild the software of articles on LLM inference, rerun their benchmarks, report what holds.

    Exit codes: 0 done, 1 a job or a step failed, 2 wrong value, 3 impossible on this machine, 130 interrupted, 143 and 129 stopped by SIGTERM and SIGHUP.
    """


def invoke(arguments: list[str], typed: Sequence[str] = ()) -> int:
    """Run a verb and return its exit code; raises KitError (also for a wrong value) and KeyboardInterrupt.

    `typed` are the names of the variables that stood after `make TARGET`.
    """
    try:
        return command_line.main(arguments, prog_name="python -m scripts", standalone_mode=False, obj=list(typed)) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        raise _kit_error(error) from error
    except click.Abort:
        raise KeyboardInterrupt from None


def told(arguments: list[str], typed: Sequence[str]) -> int:
    """Like `invoke`, but an error about a value that comes from the environment, where a user does not see it, says so."""
    try:
        return invoke(arguments, typed)
    except UsageError as error:
        raise UsageError(f"{error}{origin(str(error), arguments, os.environ)}") from error


def origin(message: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """A hint to unset the variable that an error begins with, if it comes from the environment and neither from an option nor from make's command line."""
    name = re.split(r"\W", message, maxsplit=1)[0]
    option = "--" + name.lower().replace("_", "-")
    is_option = any(argument.partition("=")[0] == option for argument in arguments)
    of_make = re.search(rf"(?:^|\s){re.escape(name)}=", environment.get("MAKEFLAGS", ""))
    if not name.isupper() or not environment.get(name) or is_option or of_make:
        return ""
    return f" (from the environment: unset {name})"


def _kit_error(error: click.ClickException) -> KitError:
    """click's error about the command line, as one line of the kit."""
    context = getattr(error, "ctx", None)
    hint = f"; try: {context.command_path} --help" if context else ""
    kit_error = KitError(f"{error.format_message().rstrip('.')}{hint}")
    kit_error.exit_code = error.exit_code
    return kit_error


def main() -> None:
    """Run the verb of the command line and end the process with its exit code."""
    typed = os.environ.pop("KIT_TYPED", "").split()  # for this command, and for none that it starts
    surroundings.use(os.environ)
    try:
        with locks.shared(clean.IN_USE):
            run_command(lambda: told(sys.argv[1:], typed))
    finally:
        for number in signals.STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)  # a second signal would show a traceback while the interpreter ends
