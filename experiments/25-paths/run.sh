# What a PRM orders: actions of one state, and paths of one game; and what a beam makes of it. One campaign of TextCraft.
# Read: what it prints.
craft="critic.require=nothing rollout.games=2400 rollout.branch.train_states=100 rollout.branch.random_states=600"
craft="$craft rollout.branch.validation_states=150 rollout.branch.continuations=4 method.games=4000 method.steps=800"
craft="$craft method.search=beam_4x4 sft.observation_weight=0.0"
THEN="python -m benchmarks.path_order --campaign . --games 400 --plays 8 --search beam_4x4" \
  sh experiments/run paths-textcraft textcraft more_demonstrations compute.threads=1 $craft
