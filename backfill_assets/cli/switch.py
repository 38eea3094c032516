"""`backfill switch`: readers of a table's name get another table. No server is needed."""

import getpass
import json

from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import terminal
from backfill_assets.publish.switch import Switch
from backfill_assets.publish.text import switched_line
from backfill_assets.workspace import open_workspace


def run(switch: Switch, *, reason: str, allow_breaking: bool, as_json: bool) -> int:
    """The exit code is 0 if readers of the channel get the other table, also if they did before."""
    release = switch.carry_out(open_workspace(), getpass.getuser(), reason, allow_breaking=allow_breaking)
    if as_json:
        number, channels = (release.number, dict(release.channels)) if release else (None, {})
        values = {"table": switch.name, "to": switch.to, "channel": switch.channel, "release": number, "channels": channels}
        print(json.dumps(values | {"exit_code": exit_codes.DONE}))
    else:
        terminal().print(switched_line(switch, release))
    return exit_codes.DONE
