"""The campaign's page once more, with campaigns of other seeds beside it: their mean, and its interval over seeds.

    agentprm report --seeds ../seed-2 ../seed-3

Run it in the campaign's own folder. The others are folders in which the same stages ran with the same parameters, but
for the seed. Nothing is played: the page is made of what the stages left, as ``compare`` makes its own
(``data/reports/campaign.html``, which stays as it is).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agentprm_core.arguments import OneLineParser
from agentprm_core.errors import EXPECTED


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = OneLineParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=Path, nargs="+", required=True, metavar="DIR", help="campaigns of other seeds")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="(default %(default)s)")
    return parser


def main(prog: str = "python -m tasks.commands.report") -> None:
    """Write the page. Exit code 2 where params.yaml cannot be used."""
    parser = _parser(prog)
    asked = parser.parse_args()
    if asked.out.is_dir():
        parser.error(f"--out {asked.out}: is a folder; name a file")
    from tasks.commands.report_seeds import rows_by_seed, together  # these load torch, which --help does not wait for
    from tasks.frame.params import ParamsError, load_params
    from tasks.report.campaign import evaluated
    from tasks.report.overview import report_page

    try:
        seeds = rows_by_seed([Path(), *asked.seeds])
        params = load_params()
        report_page(params, seeds[params.seed], evaluated(params), out=asked.out, seeds=together(seeds))
    except ParamsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except EXPECTED as error:
        sys.exit(f"report: {error}")
    print(f"{asked.out}: open it in a browser; seeds {', '.join(map(str, seeds))}")


if __name__ == "__main__":
    main()
