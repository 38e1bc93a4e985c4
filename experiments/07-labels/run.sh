# What labels cost, and what they are worth: TD + GAE and Monte Carlo by visits on 900 and 3,600 rollouts, Monte Carlo by 4
# plays from every turn of 450 of them and by 16 of 112. No branched states: TD + GAE cannot learn from them.
# Read: ranking in data/metrics/stages/prm-1.json, plays and turns_played in label-1.json, Best-of-16 in
# data/metrics/evaluate-0.json, seconds of rollout@1, label@1 and prm@1 in MLflow.
one() { # NAME ROLLOUTS WORD…
  name=$1 rollouts=$2
  shift 2
  sh experiments/run "labels-$name-$rollouts" no_memory "$@" rollout.games=$rollouts rollout.branch.train_states=0 \
    rollout.branch.random_states=0 critic.require=nothing "evaluate.decoding=[greedy,best_of_16]" -- evaluate@0
}
for rollouts in 900 3600; do
  one gae $rollouts promise_progress
  one visits $rollouts
done
one plays-4 450 playing_on
one plays-16 112 playing_on critic.continuations=16
python -m benchmarks.credit --json
