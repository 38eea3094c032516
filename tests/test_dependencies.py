"""What this project depends on is installed, in versions that fit together.

Nothing here asks for known vulnerabilities: pip-audit asks a service of PyPI or OSV about every package and cannot read a local
copy (pypa/pip-audit issue 698), and tests use no network; a list kept in this repository would be silent about what was found
since. Where a network is open, type `pip-audit` in the environment that the servers run in.
"""

import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]


def unmet(requirements: Iterable[Requirement]) -> set[str]:
    """A sentence for each of these requirements, and of what they require in turn, that the installed version does not meet."""
    pending, seen, sentences = list(requirements), set[str](), set[str]()
    while pending:
        requirement = pending.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            sentences.add(f"{requirement} is not installed")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            sentences.add(f"{requirement} is installed as {installed}")
        pending += required_by(requirement)
    return sentences


def required_by(requirement: Requirement) -> list[Requirement]:
    """What an installed package requires, with the extras that are asked for, on this machine."""
    required = map(Requirement, distribution(requirement.name).requires or [])
    extras = [{"extra": extra} for extra in ("", *requirement.extras)]
    return [each for each in required if not each.marker or any(map(each.marker.evaluate, extras))]


def test_what_the_project_names_is_installed_and_fits_together():
    named = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    assert unmet(map(Requirement, named)) == set()


def test_a_version_that_is_too_old_and_a_package_that_is_missing_are_named():
    named = ["pandas>=99", "no-such-package-of-ours>=1", "dagster"]
    assert unmet(map(Requirement, named)) == {
        f"pandas>=99 is installed as {version('pandas')}",
        "no-such-package-of-ours>=1 is not installed",
    }
