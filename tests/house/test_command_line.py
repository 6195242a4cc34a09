"""The options of the command line are a promise: they change only together with `command_line.json`.

After a wanted change: `.venv/bin/python tests/house/test_command_line.py > tests/house/command_line.json`
"""

import json
from pathlib import Path

import typer

FROZEN = Path(__file__).with_name("command_line.json")


def command_line(app: typer.Typer) -> dict[str, dict[str, dict[str, object]]]:
    """Command → parameter → how it is written, whether it must be given, and its default."""
    group = typer.main.get_command(app)
    commands = getattr(group, "commands", {group.name: group})
    return {
        name: {
            parameter.name: {
                "written": [*parameter.opts, *parameter.secondary_opts]
                if parameter.param_type_name == "option"
                else "argument",
                "required": parameter.required,
                "default": None if parameter.default is None else str(parameter.default),
            }
            for parameter in command.params
        }
        for name, command in sorted(commands.items())
    }


def test_the_command_line_is_as_frozen():
    from regard.cli.commands import app

    assert command_line(app) == json.loads(FROZEN.read_text()), (
        f"to accept the change: {__doc__.splitlines()[-1]}"
    )


def test_a_new_option_is_found():
    def look(model: str = "gpt2", *, file: str = ""): ...

    def look_wider(model: str = "gpt2", *, file: str = "", wider: bool = False): ...

    narrow, wide = typer.Typer(), typer.Typer()
    narrow.command("look")(look)
    wide.command("look")(look_wider)
    before, after = command_line(narrow), command_line(wide)
    assert before != after
    assert before["look"]["file"] == {"written": ["--file"], "required": False, "default": ""}
    assert after["look"]["wider"] == {
        "written": ["--wider", "--no-wider"],
        "required": False,
        "default": "False",
    }


if __name__ == "__main__":
    from regard.cli.commands import app

    print(json.dumps(command_line(app), indent=1))
