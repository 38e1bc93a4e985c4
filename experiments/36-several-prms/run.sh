# Do several PRMs choose better than one? Four PRMs of the same labels that differ in the order of batches: each alone, the average
# of their weights, their mean score and their lowest score, beside one PRM trained four times as long, and one half of the way back to π₀.
#
#     sh experiments/36-several-prms/run.sh             # 1,200 and 3,600 rollouts, several seeds
#     SEEDS="1" sh experiments/36-several-prms/run.sh
#
# Read: the tables of several seeds that are printed at the end.
kept=.scratch/experiments/several
mkdir -p $kept
equal="no_memory compute.threads=1 critic.require=nothing"
few="rollout.games=1200 rollout.branch.train_states=100 rollout.branch.random_states=1000
  rollout.branch.validation_states=80 rollout.branch.continuations=4"
play() { # NAME PRM SCORER…: a command that plays searches of π₀ under this PRM, and keeps the figures under this name
  echo "python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm $2 --games data/games --split seen,unseen \
    --limit 200 --searches best_of_16,best_of_64 --scorers $3 --prior 0.1,0 --threads 1 --json >$kept/$size-$1-$seed.json"
}
for size in few all; do
  [ $size = few ] && sizes=$few || sizes=""
  for seed in ${SEEDS:-2 3}; do
    prms=$kept/$size-$seed
    commands="python -m benchmarks.members --campaign . --members 4 --out $prms"
    for name in 1 2 3 4 passes halfway; do commands="$commands && $(play $name $prms/$name prm)"; done
    commands="$commands && $(play average $prms/average prm,untrained_likelihood)"
    commands="$commands && $(play together $prms/1,$prms/2,$prms/3,$prms/4 prm,worst_case)"
    THEN=$commands sh experiments/run "several-$size-$seed" $equal seed=$seed $sizes -- label@1
  done
  for name in average together passes halfway; do
    echo "$size: $name, against one PRM"
    python -m benchmarks.over_seeds $kept/$size-$name-*.json --against $kept/$size-1-*.json
  done
done
