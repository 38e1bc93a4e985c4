# What labels cost, and what they are worth: TD + GAE and Monte Carlo by visits on 900 and 3,600 rollouts, Monte Carlo by 4
# rollouts from every turn of 450 of them and by 16 of 112. No branched states: TD + GAE could not learn from them.
# Read: ranking in data/metrics/stages/prm-1.json, plays and turns_played in label-1.json, Best-of-16 in data/metrics/evaluate-0.json,
# seconds of rollout@1, label@1 and prm@1 in MLflow.
one() { # NAME ROLLOUTS -S …
  name=$1 rollouts=$2
  shift 2
  sh recipes/experiment "labels-$name-$rollouts" -S rollout.branch.train_states=0 -S rollout.branch.random_states=0 \
    -S prm.require_ranking=false -S "evaluate.decoding=[greedy,best_of_n]" -S rollout.games=$rollouts "$@" evaluate@0
}
for rollouts in 900 3600; do
  one gae $rollouts -S label.credit=gae -S prm.loss=promise_progress
  one visits $rollouts
done
one plays-4 450 -S label.credit=branching -S label.continuations=4
one plays-16 112 -S label.credit=branching -S label.continuations=16
python -m benchmarks.credit --json
