"""A first query over Spark Connect, so that the first run finds a loaded engine.

Started as `python -m backfill_assets.lake.spark.warm`. It exits with 0 after the engine has
answered with the session's token.
"""

from backfill_assets.lake.spark.session import start_session
from backfill_assets.settings import read_settings

if __name__ == "__main__":
    session = start_session(read_settings())
    session.range(10).selectExpr("id % 2 AS half").groupBy("half").count().collect()
    session.stop()
