# Near which policy is an update kept: the one before it, or the first? Both arms are the same up to evaluate@1.
# Read: success in data/metrics/evaluate-2.json, kl in data/plots/policy-2.json, each to the arm's own anchor.
dpo=$(python -m tasks.frame.profile online_dpo) || exit
for anchor in previous first; do
  sh recipes/experiment "anchor-$anchor" $dpo -S policy.anchor=$anchor -S prm.require_ranking=false -S evaluate.decoding=[greedy,sample] evaluate@1 evaluate@2
done
