"""make compat: see tests/compat/README.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.compat.campaign import Campaign
from tests.compat.variants import VARIANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="only these")
    parser.add_argument("--file", nargs="+", default=[], help="only these files, by name")
    parser.add_argument(
        "--out", type=Path, default=Path(".cache/compat/report"), help="the reports"
    )
    options = parser.parse_args()

    campaign = Campaign(options.file, options.out)
    for name in options.variant or VARIANTS:
        with tempfile.TemporaryDirectory(prefix="strata-compat-") as root:
            campaign.run(VARIANTS[name], Path(root) / "cluster")
    print(campaign.summary())
    if idle := campaign.idle_causes():
        print(f"explained nothing: {', '.join(idle)}")
    if campaign.unexplained:
        print("\nwithout a known cause:\n\n" + "\n\n".join(campaign.unexplained))
    return 1 if campaign.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
