"""A lake that a newer version has marked with its form."""

from pathlib import Path

from deltalake import DeltaTable

from backfill_assets.lake.storage import FORM, FORM_MARK, FORM_PROPERTY


def mark_newer(root: Path, form: int = FORM + 1) -> None:
    """Mark the lake at `root`, which has a ledger, as a newer version does before it writes."""
    for folder in ("_acts", "_channels", "_releases"):
        (root / folder).mkdir(exist_ok=True)
        (root / folder / f"{FORM_MARK}{form}").touch()
    ledger = DeltaTable(str(root / "_ledger"))
    ledger.alter.set_table_properties({FORM_PROPERTY: str(form)}, raise_if_not_exists=False)


def contents_of(root: Path) -> dict[str, bytes]:
    """Every file below `root` but the locks of processes."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "_locks" not in path.parts
    }
