# Reset-50-50: half of the rollouts start in states of demonstrations. The training games are those with one, and a game has
# an even number of episodes. Half of a usual update.
# Read: data/metrics/evaluate-1.json.
half="method.games=1800 method.steps=420 evaluate.decoding=[greedy,sample,best_of_16]"
games="games.train=4000 rollout.games=900 rollout.episodes_per_game=4 critic.require=nothing"
sh experiments/run resets-0.0 no_memory $half $games -- evaluate@1
sh experiments/run resets-0.5 no_memory $half $games rollout.explore.resets=0.5 -- evaluate@1
