# What does the loop make of a weaker first policy? 2,500 demonstrations instead of 4,000, and a fourth more search and update.
# Read: data/metrics/iterations.json.
sh experiments/run fewer-demonstrations no_memory seed=2 demos.games=2500 method.games=4600 method.steps=1070 \
  "evaluate.decoding=[greedy,sample]" -- evaluate@0 evaluate@1 evaluate@2 evaluate@3
