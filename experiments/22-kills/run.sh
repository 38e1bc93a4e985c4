# Two hundred kills of campaigns at random moments. Read: the last line.
python -m tests.flows.kills --kills 200 --json
