# What a PRM orders: actions of one state, and paths of one game; and what a beam makes of it. Two campaigns of
# TextCraft and the first iteration of one of all worlds. Read: what it prints.
craft="critic.require=nothing rollout.games=2400 rollout.branch.train_states=100 rollout.branch.random_states=600"
craft="$craft rollout.branch.validation_states=150 rollout.branch.continuations=4 method.games=4000 method.steps=800"
craft="$craft method.search=beam_4x4 sft.observation_weight=0.0"
THEN="python -m benchmarks.path_order --campaign . --games 400 --plays 8 --search beam_4x4" \
  sh experiments/run paths-textcraft no_memory textcraft more_demonstrations compute.threads=1 $craft
large="rollout.games=3600 rollout.branch.train_states=200 rollout.branch.random_states=3000"
large="$large rollout.branch.validation_states=200 rollout.branch.continuations=6 method.games=3600 method.steps=840"
THEN="python -m benchmarks.path_order --campaign . --games 400 --plays 8 --search beam_4x4" \
  sh experiments/run paths-few no_memory textcraft compute.threads=1 demos.games=4000 $large
all="games.train=60000 games.seen=500 games.unseen=500 demos.games=30000 sft.epochs=3 critic.require=nothing rollout.games=2500
  rollout.branch.train_states=150 rollout.branch.random_states=600 rollout.branch.validation_states=300
  rollout.branch.continuations=4"
THEN="python -m benchmarks.path_order --campaign . --iterations 1 --games 200 --plays 8 --search beam_4x4" \
  sh experiments/run paths-all no_memory all_worlds compute.threads=1 $all -- prm@1
