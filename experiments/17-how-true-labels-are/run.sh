# How true are the labels, against fresh plays from the same state? A scripted policy on generated households; no training.
# Read: the last line of each.
python -m benchmarks.credit --json
python -m benchmarks.credit --episodes 128 --json
