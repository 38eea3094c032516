"""What this project depends on is installed, in versions that fit together.

Nothing here asks for known vulnerabilities: pip-audit asks a service of PyPI or OSV about every
package and cannot read a local copy (pypa/pip-audit issue 698), and tests use no network; a list
kept in this repository would be silent about what was found since. Where a network is open, type
`pip-audit` in the environment that the servers run in.
"""

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, version
from itertools import chain
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CONSTRAINTS = ROOT / ".github" / "constraints.txt"
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"


def unmet(requirements: Iterable[Requirement]) -> set[str]:
    """A sentence for each of these requirements, and of what they require in turn, that the
    installed version does not meet.
    """
    pending = list(requirements)
    seen = set[str]()
    sentences = set[str]()
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


def test_a_version_that_is_too_old_and_a_package_that_is_missing_are_named(golden):
    named = ["pandas>=99", "no-such-package-of-ours>=1", "dagster"]
    golden("\n".join(sorted(unmet(map(Requirement, named)))), PANDAS=version("pandas"))


def test_every_dependency_has_an_upper_bound():
    groups = [PYPROJECT["build-system"]["requires"], PROJECT["dependencies"]]
    groups += [*PROJECT["optional-dependencies"].values(), *PYPROJECT["dependency-groups"].values()]
    named = [Requirement(line) for group in groups for line in group]
    unbounded = {str(one) for one in named if not bounded(one)}
    assert unbounded == {
        "backfill-assets[calendars,dagster-postgres,kafka,postgres]",
        "backfill-assets[test]",
    }


def bounded(requirement: Requirement) -> bool:
    """Whether a requirement names its newest version, or the first one that is too new."""
    return any(clause.operator in ("<", "<=", "==", "~=") for clause in requirement.specifier)


def test_the_constraints_are_exact_versions_that_pyproject_allows():
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    exact = dict(line.split("==") for line in lines)
    versions = {canonicalize_name(name): number for name, number in exact.items()}
    named = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    requirements = [one for one in map(Requirement, named) if one.name != PROJECT["name"]]
    for one in requirements:
        assert one.specifier.contains(versions[canonicalize_name(one.name)]), one


def test_the_constraints_name_no_address():
    assert not re.search(r"[@/]|^-", CONSTRAINTS.read_text().replace(".github/", ""), re.MULTILINE)


def test_the_workflow_runs_the_command_of_the_readme():
    (command,) = re.findall(
        r"^pip install .* && pytest$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    runs = {name: [step.get("run") for step in job["steps"]] for name, job in jobs.items()}
    assert command in runs["all"]
    assert command in runs["newest"]
    assert f"{command} -m pure" in runs["fast"]
    assert jobs["all"]["needs"] == "fast"


def test_only_the_job_of_mondays_installs_the_newest_versions():
    workflow = yaml.safe_load(WORKFLOW.read_text())
    constrained = {
        name: job
        for name, job in workflow["jobs"].items()
        if "PIP_CONSTRAINT" in job.get("env", {})
    }
    assert set(workflow["jobs"]) - set(constrained) == {"newest"}
    for job in constrained.values():
        assert job["env"]["PIP_CONSTRAINT"].endswith("/.github/constraints.txt")
    mondays, nights = [each["cron"] for each in workflow[True]["schedule"]]
    on_demand = "github.event_name == 'workflow_dispatch'"
    conditions = {name: job["if"] for name, job in workflow["jobs"].items()}
    assert conditions.pop("newest") == f"github.event.schedule == '{mondays}' || {on_demand}"
    assert conditions.pop("nightly") == f"github.event.schedule == '{nights}' || {on_demand}"
    assert set(conditions.values()) == {"github.event_name != 'schedule'"}
