# Does a search gain by looking ahead in a learnt world model? Best-of-8 of the first policy by the PRM, by the policy's likelihood,
# and by what a world model imagines one and two steps after each of the eight actions. The world model learns from the rollouts.
# Read: the table of success, and world_model in data/metrics/stages/evaluate-0.json.
sh experiments/run lookahead no_memory compute.threads=1 critic.require=nothing \
  "evaluate.decoding=[greedy,best_of_8,best_of_8_by_untrained_likelihood,lookahead_of_8x1,lookahead_of_8x2]" -- evaluate@0
