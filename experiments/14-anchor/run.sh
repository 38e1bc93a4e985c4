# Near which policy is an update kept: the one before it, or the first? Both arms are the same up to evaluate@1.
# Read: success in data/metrics/evaluate-2.json, kl in data/plots/policy-2.json, each to the arm's own anchor.
for anchor in previous first; do
  sh experiments/run "anchor-$anchor" no_memory online_dpo method.anchor=$anchor critic.require=nothing \
    "evaluate.decoding=[greedy,sample]" -- evaluate@1 evaluate@2
done
