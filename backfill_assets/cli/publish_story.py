"""The story `publish`: a rebuild by a wrong rule is stopped, the mended one is published step by step, and taken back."""

from backfill_assets.cli.story_steps import Command, Edit, Story
from backfill_assets.datasets.outages import sample

DAYS = "2019-08-15..2019-08-21"
FILE, RULE = "outages/staging.py", "return last_state(updates.where(PLACED))"
WRONG = f'{RULE}.withColumn("customers", F.expr("int(peak_customers * updates)"))'
RIGHT = f'{RULE}.withColumn("customers", F.col("peak_customers"))'
FLAGS = '--only outdated --downstream --into shadow --canary 0 --yes --reason "customers at the peak"'

PUBLISH = Story(
    name="publish",
    project=sample.__package__ or "",
    opening="The story of a new rule. Written wrongly, it is rebuilt where nobody sees it, and stopped. Mended, it goes to a "
    "few readers, then to all. In the end it is taken back.",
    settings={"BACKFILL_LAST_DAY": "2019-08-21"},
    steps=(
        Command(
            "Seven days of every table are built. Every day is audited before it is committed.",
            f"backfill run --partitions {DAYS} --canary 0 --yes",
        ),
        Command(
            "A release names one version of every table: it is what readers get. Servers release live by themselves within a "
            "minute of a run; here it is done at once.",
            'backfill release --reason "the first seven days"',
        ),
        Edit(
            "The customers of an outage are to be the most that it ever had, not those that were left at its end. The new rule "
            "has a mistake: it counts them again with every update.",
            FILE,
            RULE,
            WRONG,
        ),
        Command("The servers load the edited code.", "backfill reload"),
        Command(
            "What the new rule has made outdated is built in a shadow, with all that is made from it. No reader sees it.",
            f"backfill run --partitions {DAYS} {FLAGS}",
        ),
        Command("Which rows would change, and how.", "backfill diff --table staging/outages"),
        Command(
            "The checklist: every day built by the planned code, rows, nulls, keys, drift against live, days outside the plan, "
            "and what the project declares. The customers have become another population: that fails.",
            "backfill verify",
            code=1,
        ),
        Command("What failed is not published. Readers, and live, have what they had.", "backfill publish", code=4),
        Command("The shadow is deleted.", 'backfill discard --yes --reason "customers were counted with every update"'),
        Edit("The rule is mended.", FILE, WRONG, RIGHT),
        Command("The servers load it.", "backfill reload"),
        Command("And the days are built once more.", f"backfill run --partitions {DAYS} {FLAGS}"),
        Command(
            "Nothing fails now. But customers did change, which the project leaves to a person's decision.",
            "backfill verify",
            code=1,
        ),
        Command(
            "A person takes it, with a reason; name and reason are kept with the verdict.",
            "backfill verify --accept 'drift staging/outages.customers' --reason \"crews restore step by step\"",
        ),
        Command(
            "The days go into live, one commit a table, then into a release, which a few readers get first.",
            "backfill publish --channel candidate",
        ),
        Command("Who gets which release now.", "backfill releases"),
        Command("All others get it too.", "backfill publish {plan}"),
        Command(
            "It can be taken back, weeks later too: the files of before are committed again, and days that others have built "
            "since stay.",
            'backfill rollback {plan} --yes --reason "the customers that are left are wanted after all"',
        ),
        Command("Live is released as it is again.", 'backfill release --reason "taken back"'),
        Command("Everything that happened to the tables, and why.", "backfill log --target staging/outages"),
    ),
)
