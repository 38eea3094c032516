"""`python -m backfill_assets.cli` is `backfill`."""

from backfill_assets.cli.app import command

command()
