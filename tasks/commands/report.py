"""A campaign's page once more; with campaigns of other seeds their mean, and its interval over seeds.

    agentprm report                                    # of the campaign in this folder
    agentprm report --campaign DIR
    agentprm report --seeds ../seed-2 ../seed-3        # this folder's campaign with two others

Campaigns that stand together are folders in which the same stages ran with the same parameters, but for the seed. Where
this folder has no campaign and none is named, the page is that of the first of ``--seeds``. Nothing is played: the page
is made of what the stages left, as ``compare`` makes its own (``data/reports/campaign.html``, which stays as it is).
"""

from __future__ import annotations

import argparse
import sys
from contextlib import chdir
from pathlib import Path

from agentprm_core.arguments import OneLineParser
from agentprm_core.errors import EXPECTED, DataError


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = OneLineParser(prog=prog, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--campaign", type=Path, metavar="DIR", help="whose page it is (default: of this folder)")
    parser.add_argument("--seeds", type=Path, nargs="+", default=[], metavar="DIR", help="campaigns of other seeds")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="(default %(default)s)")
    return parser


def main(prog: str = "python -m tasks.commands.report") -> None:
    """Write the page. Exit code 2 where params.yaml cannot be used."""
    parser = _parser(prog)
    asked = parser.parse_args()
    if asked.out.is_dir():
        parser.error(f"--out {asked.out}: is a folder; name a file")
    from tasks.frame.params import ParamsError  # this loads torch, which --help does not wait for

    try:
        seeds = _written(asked)
    except ParamsError as error:
        print(f"report: {error}", file=sys.stderr)
        sys.exit(2)
    except EXPECTED as error:
        sys.exit(f"report: {error}")
    others = f"; seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else ""
    print(f"{asked.out}: open it in a browser{others}")


def _written(asked: argparse.Namespace) -> list[int]:
    """Write the page; the seeds that are on it. Raises DataError where there is no campaign, or one that does not
    belong beside the others."""
    from tasks.commands.report_seeds import rows_by_seed, together
    from tasks.frame.params import PARAMS, load_params
    from tasks.report.campaign import evaluated
    from tasks.report.overview import report_page

    campaign, others = asked.campaign or Path(), asked.seeds
    if asked.campaign is None and not PARAMS.exists():
        if not others:
            raise DataError("no campaign in this folder: run it where params.yaml is, or give --campaign DIR")
        campaign, *others = others
    out, seeds = asked.out.resolve(), rows_by_seed([campaign, *others])
    with chdir(campaign):
        params = load_params()
        told = together(seeds) if len(seeds) > 1 else ()
        report_page(params, seeds[params.seed], evaluated(params), out=out, seeds=told)
    return list(seeds)


if __name__ == "__main__":
    main()
