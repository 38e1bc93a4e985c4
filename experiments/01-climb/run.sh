# Does the policy climb over three iterations? Also by fine-tuning on its own successes, and by paper A's update.
# Read: data/metrics/iterations.json of each.
sh experiments/run climb
sh experiments/run climb-2 seed=2
sh experiments/run climb-3 seed=3 compute.threads=1
sh experiments/run climb-rft rft
sh experiments/run climb-dpo online_dpo
# The control: as many steps on the demonstrations alone. The shorter one is an arm of experiment 18.
THEN="python -m benchmarks.updates --campaign . --keep data/updates --arms demonstrations --steps 2520 --json" \
  sh experiments/run climb-1-thread compute.threads=1
THEN="python -m benchmarks.updates --campaign . --keep data/updates-2 --arms demonstrations --steps 840 --json" \
  sh experiments/run climb-1-thread-2 compute.threads=1 seed=2 -- evaluate@0 evaluate@1 evaluate@2
