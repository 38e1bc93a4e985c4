# Cross-entropy or Bradley-Terry? The relative loss learns from branched states alone. Half of a usual update.
# Read: ranking in data/metrics/stages/prm-1.json, success in data/metrics/evaluate-1.json.
half="method.games=1800 method.steps=420 evaluate.decoding=[greedy,sample,best_of_16]"
states="rollout.branch.train_states=1000 rollout.branch.random_states=0 critic.require=nothing"
sh experiments/run loss-bce no_memory $half $states -- evaluate@1
sh experiments/run loss-relative no_memory relative $half $states -- evaluate@1
