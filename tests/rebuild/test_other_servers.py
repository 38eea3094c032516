"""Servers that work on something else than the command that asks them: nothing is launched."""

from backfill_assets.cli.doctor import webserver
from backfill_assets.plan.progress import Ending
from backfill_assets.plan.request import PlanOptions
from backfill_assets.rebuild.launch import WAY_OUT
from tests.worlds.tables import A
from tests.worlds.webservers import Server, chain, ended


def refused(server: Server) -> str:
    """Why a plan of all tables is not carried out by these servers."""
    end = ended(server.rebuild(server.planned(PlanOptions())))
    assert (end.ending, server.launched) == (Ending.REFUSED, [])
    assert end.stopped
    return end.stopped.why


def test_servers_of_another_lake_are_refused_with_both(tmp_path):
    server = chain(tmp_path)
    server.serves = "/another/lake"
    assert (
        f"a table is at file:///another/lake/raw/a, and the lake of this command is {tmp_path}"
        in refused(server)
    )


def test_servers_of_another_project_are_refused_with_the_tables_that_they_lack(tmp_path):
    server = chain(tmp_path)
    server.lacks = {"raw/b", "raw/c"}
    why = refused(server)
    assert (
        f"The servers at {server.dagster.url} have no table raw/b, raw/c: they work on another"
        " project" in why
    )
    assert why.endswith("`backfill down`, then `backfill up`. Then type the same command again.")


def test_the_doctor_warns_of_servers_of_another_project_with_the_way_out(tmp_path):
    server = chain(tmp_path)
    names = [A.name, "raw/b"]
    assert webserver(server.dagster, names).level == "ok"
    server.lacks = {"raw/b"}
    found = webserver(server.dagster, names)
    assert (found.level, found.remedy) == ("warn", WAY_OUT)
    assert (
        f"those at {server.dagster.url} have no table raw/b: they work on another project"
        in found.message
    )
