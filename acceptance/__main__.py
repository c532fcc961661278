"""``python -m acceptance burst …``: the one command of this package."""

from __future__ import annotations

import sys

from acceptance.burst import cli

USAGE = "usage: python -m acceptance burst --rpc URL --senders N --count N (--mnemonic WORDS | --keys FILE) …"


def main(argv: list[str]) -> int:
    """Run the command that ``argv`` names; its exit code."""
    if argv[:1] != ["burst"]:
        print(USAGE, file=sys.stderr)
        return 0 if argv[:1] in (["-h"], ["--help"]) else 2
    return cli.main(argv[1:])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
