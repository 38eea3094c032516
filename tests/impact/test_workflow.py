"""The workflow of the guide: its steps, and the one comment that it writes and updates."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.worlds.command_line import guide

pytestmark = pytest.mark.servers
# Like `gh api`, with the comments of a pull request in a file. Its filter is that of the workflow.
GH = """#!{python}
import json, os, sys
from pathlib import Path
arguments = sys.argv[1:]
file = Path(os.environ["COMMENTS_FILE"])
comments = json.loads(file.read_text())
if "--jq" in arguments:
    wanted = arguments[arguments.index("--jq") + 1]
    assert wanted == ".[] | select(.body | startswith(env.MARKER)) | .url", wanted
    found = [one["url"] for one in comments if one["body"].startswith(os.environ["MARKER"])]
    print(*found, sep="\\n", end="\\n" if found else "")
    sys.exit()
kind, method, url, field, body = arguments[1:]
assert (kind, field) == ("--method", "-F"), arguments
text = Path(body.removeprefix("body=@")).read_text()
if method == "POST":
    assert url == os.environ["COMMENTS"]
    comments.append({{"url": f"https://api/comments/{{len(comments)}}", "body": text}})
else:
    [comment] = [one for one in comments if one["url"] == url]
    comment["body"] = text
file.write_text(json.dumps(comments))
"""


@pytest.fixture
def steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load(guide("rebuild").block_with("yaml", "pull-requests: write"))
    return list(workflow["jobs"]["impact"]["steps"])


def test_one_comment_is_written_and_updated(steps, tmp_path: Path):
    gh = tmp_path / "gh"
    gh.write_text(GH.format(python=sys.executable))
    gh.chmod(0o755)
    comments = tmp_path / "comments.json"
    other = {"url": "https://api/comments/0", "body": "see <!-- backfill impact of shop -->"}
    comments.write_text(json.dumps([other]))
    script = steps[-1]["run"]
    env = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "COMMENTS": "repos/a/b/issues/1/comments",
        "COMMENTS_FILE": str(comments),
    }
    for text in ("first", "second", "third"):
        body = f"<!-- backfill impact of shop -->\n### {text}\n"
        (tmp_path / "impact.md").write_text(body)
        # As a runner runs a step.
        command = ["bash", "-e", "-c", script]
        subprocess.run(command, cwd=tmp_path, env=env, check=True)
        assert json.loads(comments.read_text()) == [
            other,
            {"url": "https://api/comments/1", "body": body},
        ]


def test_the_workflow_fetches_the_base_that_it_compares_with(steps):
    assert steps[0]["with"]["fetch-depth"] == 2
    [command] = [step["run"] for step in steps if "backfill impact" in step.get("run", "")]
    assert command == "backfill impact --base HEAD^1 --markdown > impact.md"
