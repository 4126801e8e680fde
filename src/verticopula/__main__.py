"""`python -m verticopula`: the same as the command `verticopula`."""

from verticopula.cli.app import main

main()
