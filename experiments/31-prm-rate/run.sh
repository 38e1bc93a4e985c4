# At what learning rate is a PRM trained that is to choose actions? Searches of π₀ under PRMs of one set of rollouts, with one seed
# for the rates and with five for two of them; the second PRM; two other critics.
#
#     sh experiments/31-prm-rate/run.sh             # five seeds
#     SEEDS="1 2" sh experiments/31-prm-rate/run.sh
#
# Read: the table of several seeds that is printed last; what each PRM's searches won in .scratch/experiments/prm-rate; loss, AUC
# and ranking on held-out games in data/metrics/stages/prm-1.json of each experiment.
kept=.scratch/experiments/prm-rate
mkdir -p $kept
equal="no_memory compute.threads=1 critic.require=nothing"
searched() { # POLICY NAME: a command that plays searches of this policy under its PRM, its parts and nobody's, and keeps the figures
  echo "python -m benchmarks.placebo --policy data/checkpoints/policy/$1 --prm data/checkpoints/prm/$(($1 + 1)) --games data/games \
    --split seen,unseen --limit 200 --searches best_of_16,best_of_64,beam_1x16 --scorers prm,head,trained_likelihood,untrained_likelihood \
    --prior 0.1,0 --threads 1 --json >$kept/$2.json"
}
for rate in 5.0e-5 2.0e-4 1.0e-3; do
  THEN=$(searched 0 $rate-1) sh experiments/run "prm-rate-$rate-1" $equal critic.learning_rate=$rate -- prm@1
done
for rate in 2.0e-4 5.0e-4; do
  THEN=$(searched 0 $rate-four-1) sh experiments/run "prm-rate-$rate-four-1" $equal critic.learning_rate=$rate critic.epochs=4 -- prm@1
done
for seed in ${SEEDS:-1 2 3 4 5}; do
  for rate in 1.0e-4 5.0e-4; do
    THEN=$(searched 0 $rate-$seed) sh experiments/run "prm-rate-$rate-$seed" $equal seed=$seed critic.learning_rate=$rate -- prm@1
  done
done
# The update, and the PRM of the second iteration from the one before or from π₁: one seed.
low="seed=2 critic.learning_rate=1.0e-4 critic.prior=0.0 evaluate.decoding=[greedy,sample]"
sh experiments/run prm-rate-update $equal $low -- evaluate@0 evaluate@1
for from in prm policy; do
  THEN=$(searched 1 second-$from) sh experiments/run "prm-rate-second-$from" $equal $low critic.init_from=$from -- prm@2
done
# In the default world, whose searches have a memory: two seeds, against experiment 27's.
for seed in 1 2; do
  sh experiments/run "prm-rate-default-$seed" seed=$seed compute.threads=1 games.seen=400 games.unseen=400 "evaluate.decoding=[greedy]" \
    critic.require=nothing critic.learning_rate=1.0e-4 critic.prior=0.0 -- evaluate@1
done
# Thirty times the branched states, and two other critics.
branched="rollout.branch.train_states=6000 rollout.branch.continuations=3"
THEN=$(searched 0 branched) sh experiments/run prm-rate-branched $equal $branched critic.learning_rate=1.0e-4 -- prm@1
for critic in promise_progress outcome; do
  for rate in 1.0e-4 5.0e-4; do
    THEN=$(searched 0 $critic-$rate) sh experiments/run "prm-rate-$critic-$rate" $critic $equal critic.learning_rate=$rate \
      rollout.branch.train_states=200 rollout.branch.random_states=3000 -- prm@1
  done
done
# Arithmetic, with the policy, rollouts and games of 28: each critic's PRM of 1e-4 plays beside its PRM of 5e-4.
for critic in monte_carlo promise_progress; do
  profile=$critic
  [ $critic = promise_progress ] || profile=critic.name=monte_carlo
  for rate in 5.0e-4 1.0e-4; do
    beside=
    [ $rate = 5.0e-4 ] || beside="--placebo $kept/arithmetic-$critic-5.0e-4"
    THEN="rm -rf $kept/arithmetic-$critic-$rate && cp -rL data/checkpoints/prm/1 $kept/arithmetic-$critic-$rate &&
      python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 $beside --games data/games --split seen \
      --limit 200 --max-action-tokens 8 --searches best_of_16,best_of_64,beam_4x4 --prior 0.1,0 --threads 1 \
      --scorers prm,${beside:+placebo,}untrained_likelihood" \
      sh experiments/run "prm-rate-arithmetic-$critic-$rate" no_memory $profile arithmetic compute.threads=1 \
      critic.require=nothing games.train=12800 rollout.branch.train_states=0 rollout.branch.random_states=0 critic.learning_rate=$rate -- prm@1
  done
done
python -m benchmarks.over_seeds $kept/1.0e-4-[0-9].json --against $kept/5.0e-4-[0-9].json
