# Does a PRM choose better between its start and its trained weights, and do several PRMs choose better than one? Searches of π₀.
#
#     sh experiments/36-mixed-prms/run.sh             # all seeds
#     SEEDS="2" sh experiments/36-mixed-prms/run.sh   # one of them
#
# Read: the tables of several seeds that are printed, and the rows in .scratch/experiments/several.
kept=.scratch/experiments/several
mkdir -p $kept
equal="no_memory compute.threads=1 critic.require=nothing"
few="rollout.games=1200 rollout.branch.train_states=100 rollout.branch.random_states=1000
  rollout.branch.validation_states=80 rollout.branch.continuations=4"
play() { # NAME PRM SCORER… [OPTION]…: a command that plays searches of π₀ under this PRM, and keeps the figures under this name
  name=$1 prm=$2 scorers=$3
  shift 3
  echo "python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm $prm --games data/games --split seen,unseen \
    --limit 200 --searches $searches --scorers $scorers --prior 0.1,0 --threads 1 --json $* >$kept/$size-$name-$seed.json"
}
# 1,200 rollouts: mixed with the start in several shares, and a placebo that is mixed too
size=few searches=best_of_16,best_of_64
for seed in ${SEEDS:-1 2 3 4}; do
  for mixing in 1.0 0.75 0.5 0.25; do
    commands=$(play $mixing data/checkpoints/prm/1 prm,untrained_likelihood)
    if [ $mixing = 0.5 ]; then
      placebo=$kept/placebo-$seed
      commands="$commands && python -m benchmarks.placebo_prm --campaign . --out $placebo"
      commands="$commands && $(play placebo data/checkpoints/prm/1 prm,placebo --placebo $placebo)"
    fi
    THEN=$commands sh experiments/run "several-$seed-$mixing" $equal seed=$seed $few \
      "critic.init_from={weights: prm, mixing: $mixing}" -- prm@1
  done
done
python -m benchmarks.over_seeds $kept/few-0.5-*.json --against $kept/few-1.0-*.json
# the same rollouts: four PRMs alone, averaged and together, and one with four times the passes; then each half of the way
for seed in ${SEEDS:-2 3}; do
  prms=$kept/$seed
  commands="python -m benchmarks.members --campaign . --members 4 --out $prms"
  for name in 1 2 3 4 average passes average-halfway passes-halfway; do
    commands="$commands && $(play $name $prms/$name prm)"
  done
  commands="$commands && $(play together $prms/1,$prms/2,$prms/3,$prms/4 prm,worst_case)"
  THEN=$commands sh experiments/run "several-members-$seed" $equal seed=$seed $few -- label@1
done
# 3,600 rollouts, as the profile has them; then one update by each search
size=all searches=best_of_16,best_of_64,beam_1x16
update="python -m benchmarks.updates --campaign . --arms prm --all --json --keep"
for seed in ${SEEDS:-2 3}; do
  for mixing in 1.0 0.5; do
    prior=0.1
    [ $mixing = 1.0 ] || prior=0.0
    THEN="$(play $mixing data/checkpoints/prm/1 prm,untrained_likelihood) &&
      $update $kept/update-$mixing-$seed >$kept/update-$mixing-$seed.json" \
      sh experiments/run "several-all-$seed-$mixing" $equal seed=$seed "critic.init_from={weights: prm, mixing: $mixing}" \
      critic.prior=$prior -- prm@1
  done
done
