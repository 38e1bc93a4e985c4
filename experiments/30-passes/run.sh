# How good could a PRM be, and do more passes over the same rollouts bring it nearer? Searches of π₀ under PRMs of one, two and
# four passes, with several seeds; then one update by the searches of two of them.
#
#     sh experiments/30-passes/run.sh             # five seeds
#     SEEDS="1" sh experiments/30-passes/run.sh
#
# Read: the table of several seeds that is printed after them; success of π₀ and π₁ in data/metrics/evaluate-0.json and evaluate-1.json.
kept=.scratch/experiments/passes
mkdir -p $kept
equal="no_memory compute.threads=1 critic.require=nothing"
judged() { # NAME: a command that plays searches of π₀ under its PRM and under nobody's, and keeps the figures under this name
  echo "python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 --games data/games \
    --split seen,unseen --limit 200 --searches best_of_16,best_of_64,beam_1x16 --scorers prm,untrained_likelihood \
    --prior 0.1,0 --threads 1 --json >$kept/$1-$seed.json"
}
for seed in ${SEEDS:-1 2 3 4 5}; do
  for passes in 1 2 4; do
    THEN=$(judged $passes) sh experiments/run "passes-$passes-$seed" $equal seed=$seed critic.epochs=$passes -- prm@1
  done
done
python -m benchmarks.over_seeds $kept/4-*.json --against $kept/1-*.json
# 6,000 undecided states in place of 200, each of their actions played on three times: one seed.
seed=1
branched="rollout.branch.train_states=6000 rollout.branch.continuations=3"
for passes in 1 2 4; do
  THEN=$(judged branched-$passes) sh experiments/run "passes-branched-$passes" $equal seed=1 $branched critic.epochs=$passes -- prm@1
done
# The ceiling, and numbers of samples: one seed.
searches=best_of_2,best_of_4,best_of_8,best_of_16,best_of_32,best_of_64,beam_1x16,beam_1x16_back,beam_4x4,beam_8x8
THEN="python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 --games data/games --split seen,unseen \
    --limit 50 --searches best_of_16 --scorers prm,true_q,untrained_likelihood --prior 0 --threads 1 &&
  python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 --games data/games --split seen,unseen \
    --limit 100 --searches $searches --scorers prm,untrained_likelihood,constant,random --prior 0.1,0 --threads 1" \
  sh experiments/run passes-ceiling $equal seed=1 -- prm@1
# Then the update, with the seeds that no number of passes was chosen by.
for seed in 2 4; do
  for passes in 1 4; do
    sh experiments/run "passes-update-$passes-$seed" $equal seed=$seed critic.epochs=$passes "evaluate.decoding=[greedy,sample]" \
      -- evaluate@0 evaluate@1
  done
done
