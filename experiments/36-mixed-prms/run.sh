# Does a PRM choose better between its start and its trained weights, and do several PRMs choose better than one? Searches of π₀.
#
#     sh experiments/36-mixed-prms/run.sh             # all seeds
#     SEEDS="2" sh experiments/36-mixed-prms/run.sh   # one of them
#
# Read: the two tables of several seeds that are printed, and the tables in .scratch/experiments/mixed.
kept=.scratch/experiments/mixed
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
mixed() { # MIXING: the word of an experiment
  echo "critic.init_from={weights: prm, mixing: $1}"
}
# 1,200 rollouts: the PRM, and half of the way
size=few searches=best_of_16,best_of_64
for seed in ${SEEDS:-1 2 3 4}; do
  for mixing in 1.0 0.5; do
    THEN=$(play $mixing data/checkpoints/prm/1 prm,untrained_likelihood) \
      sh experiments/run "mixed-$seed-$mixing" $equal seed=$seed $few "$(mixed $mixing)" -- prm@1
  done
done
python -m benchmarks.over_seeds $kept/few-0.5-*.json --against $kept/few-1.0-*.json
# the same rollouts: other shares, a placebo, and four PRMs alone, averaged and together, and one with four times the passes
for seed in ${SEEDS:-2 3}; do
  for mixing in 0.75 0.25; do
    THEN=$(play $mixing data/checkpoints/prm/1 prm) \
      sh experiments/run "mixed-$seed-$mixing" $equal seed=$seed $few "$(mixed $mixing)" -- prm@1
  done
  placebo=$kept/placebo-$seed
  THEN="python -m benchmarks.placebo_prm --campaign . --out $placebo &&
    $(play placebo data/checkpoints/prm/1 placebo --placebo $placebo)" \
    sh experiments/run "mixed-$seed-placebo" $equal seed=$seed $few "$(mixed 0.5)" -- prm@1
  prms=$kept/members-$seed
  commands="python -m benchmarks.members --campaign . --members 4 --out $prms"
  for name in 1 2 3 4 average passes average-halfway passes-halfway; do
    commands="$commands && $(play $name $prms/$name prm)"
  done
  commands="$commands && $(play together $prms/1,$prms/2,$prms/3,$prms/4 prm,worst_case)"
  THEN=$commands sh experiments/run "mixed-$seed-members" $equal seed=$seed $few -- label@1
done
# 3,600 rollouts, as the profile has them; then one update by each search
size=all searches=best_of_16,best_of_64,beam_1x16
update() { # MIXING
  folder=$kept/update-$1-$seed
  echo "rm -rf $folder && python -m benchmarks.updates --campaign . --arms prm --all --keep $folder --json >$folder.json"
}
for seed in ${SEEDS:-1 2 3 4}; do
  for mixing in 1.0 0.5; do
    prior=0.0
    [ $mixing = 0.5 ] || prior=0.1
    then=$(play $mixing data/checkpoints/prm/1 prm,untrained_likelihood)
    case $seed in 2 | 3) then="$then && $(update $mixing)" ;; esac # the update has two seeds
    THEN=$then \
      sh experiments/run "mixed-all-$seed-$mixing" $equal seed=$seed "$(mixed $mixing)" critic.prior=$prior -- prm@1
  done
done
python -m benchmarks.over_seeds $kept/all-0.5-*.json --against $kept/all-1.0-*.json
# WebShop: the placebo of this table is the PRM that is not mixed
seed=1 size=webshop searches=best_of_16,best_of_64,beam_4x4
shop="no_memory seed=1 webshop compute.threads=1 critic.require=nothing demos.games=1000 sft.epochs=4.6 games.train=12800"
shop="$shop rollout.games=3600 rollout.branch.train_states=0 rollout.branch.random_states=0"
shop="$shop rollout.branch.validation_states=200 rollout.branch.continuations=6"
whole=$kept/prm-webshop
THEN="rm -rf $whole && cp -rL data/checkpoints/prm/1 $whole" sh experiments/run mixed-webshop-1.0 $shop -- prm@1
THEN=$(play 0.5 data/checkpoints/prm/1 prm,placebo,untrained_likelihood --placebo $whole --max-action-tokens 32) \
  sh experiments/run mixed-webshop-0.5 $shop "$(mixed 0.5)" -- prm@1
