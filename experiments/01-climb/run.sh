# Does the policy climb over three iterations? Also by fine-tuning on its own successes, and by paper A's update.
# Read: data/metrics/iterations.json of each.
sh experiments/run climb no_memory
sh experiments/run climb-2 no_memory seed=2
sh experiments/run climb-3 no_memory seed=3 compute.threads=1
sh experiments/run climb-rft no_memory rft
sh experiments/run climb-dpo no_memory online_dpo
# The control: as many steps on the demonstrations alone. The shorter one is an arm of experiment 18.
THEN="python -m benchmarks.updates --campaign . --keep data/updates --arms demonstrations --steps 2520 --json" \
  sh experiments/run climb-1-thread no_memory compute.threads=1
THEN="python -m benchmarks.updates --campaign . --keep data/updates-2 --arms demonstrations --steps 840 --json" \
  sh experiments/run climb-1-thread-2 no_memory compute.threads=1 seed=2 -- evaluate@0 evaluate@1 evaluate@2
# No loss on observations, with more games and steps; and a search with clones in its first iteration.
more="compute.threads=1 sft.observation_weight=0.0 games.train=25000 games.seen=400 games.unseen=400 method.games=4500 method.steps=1400"
more="$more critic.require=nothing evaluate.decoding=[greedy]"
THEN="python -m benchmarks.updates --campaign . --keep data/updates-more --arms demonstrations --all --steps 2800 --json" \
  sh experiments/run climb-more no_memory $more
sh experiments/run climb-more-clones no_memory $more method.search=beam_4x4 -- evaluate@1
