# Do previous-token heads help a small model from scratch? In TextCraft with demonstrations by a plan, which no policy from
# scratch imitates well; experiment 23 has those that one does. Households have none by default.
one="compute.threads=1"
heads="model.heads={count: 4, previous_token: 2}"
many="games.train=30000 sft.epochs=5 method.search=beam_1x16"
many="$many evaluate.decoding=[greedy,sample,best_of_16,best_of_16_by_untrained_likelihood,beam_4x4]"
many="$many rollout.games=3600 rollout.branch.train_states=200 rollout.branch.random_states=3000"
many="$many rollout.branch.validation_states=200 rollout.branch.continuations=6 method.games=3600 method.steps=840"
plan="demos.games={count: 12000, by: plan}"
sh experiments/run heads-textcraft-plain no_memory textcraft $one $many "$plan" model.heads=4
THEN="python -m benchmarks.side_by_side textcraft=." \
  sh experiments/run heads-textcraft no_memory textcraft $one $many "$plan" "$heads" &&
  python -m benchmarks.imitation --policy two=data/checkpoints/policy/0 --games data/games
by="evaluate.decoding=[greedy,beam_8x8,beam_8x8_by_untrained_likelihood,beam_8x8_by_constant]"
sh experiments/run heads-textcraft-8x8 no_memory textcraft $one $many "$plan" "$heads" $by -- evaluate@0
kept=.scratch/experiments/heads
for with in no two two_of_eight; do
  case $with in
    no) set -- ;;
    two) set -- "$heads" ;;
    two_of_eight) set -- "model.heads={count: 8, previous_token: 2}" ;;
  esac
  sh experiments/run "heads-households-$with" no_memory seed=3 $one "$@" -- sft
  rm -rf "${kept:?}/$with" && mkdir -p $kept
  if [ -d data/checkpoints/policy/0 ]; then cp -rL data/checkpoints/policy/0 $kept/$with; fi
  for split in seen unseen; do
    python -m tasks.evaluate --policy $kept/$with --games data/games --split $split --json
  done
done
python -m benchmarks.imitation --policy no=$kept/no --policy two=$kept/two --policy eight=$kept/two_of_eight --games data/games --limit 200
