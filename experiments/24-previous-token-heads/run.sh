# Do previous-token heads help a small model from scratch? TextCraft's profile has them, and experiment 23 ran it without.
# Households have none by default.
one="compute.threads=1"
heads="model.heads={count: 4, previous_token: 2}"
many="demos.games=12000 games.train=30000 sft.epochs=5"
sh experiments/run heads-textcraft textcraft $one $many &&
  python -m benchmarks.side_by_side textcraft=. &&
  python -m benchmarks.imitation --policy two=data/checkpoints/policy/0 --games data/games
by="evaluate.decoding=[greedy,beam_8x8,beam_8x8_by_untrained_likelihood,beam_8x8_by_constant]"
sh experiments/run heads-textcraft-8x8 textcraft $one $many $by -- evaluate@0
kept=.scratch/experiments/heads
for with in no two; do
  [ $with = two ] && set -- "$heads" || set --
  sh experiments/run "heads-households-$with" seed=3 $one "$@" -- sft
  rm -rf "${kept:?}/$with" && mkdir -p $kept
  if [ -d data/checkpoints/policy/0 ]; then cp -rL data/checkpoints/policy/0 $kept/$with; fi
  for split in seen unseen; do
    python -m tasks.evaluate --policy $kept/$with --games data/games --split $split --json
  done
done
python -m benchmarks.imitation --policy no=$kept/no --policy two=$kept/two --games data/games
