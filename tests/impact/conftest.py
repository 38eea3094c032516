"""A shop whose days are built once for each module, and copied for each test."""

import shutil
from pathlib import Path

import pytest

from tests.worlds.shop import Shop


@pytest.fixture(scope="module")
def built(tmp_path_factory, spark) -> Shop:
    shop = Shop.at(tmp_path_factory.mktemp("shop"))
    shop.deliver()
    shop.build(spark)
    return shop


@pytest.fixture
def shop(built: Shop, tmp_path: Path) -> Shop:
    shutil.copytree(built.root, tmp_path / "shop")
    return Shop(tmp_path / "shop")
