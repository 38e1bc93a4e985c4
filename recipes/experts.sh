# InversePRM against fine-tuning on the same 2,000 demonstrations, when experts err at a share of their turns. The policy follows its
# preferences; and with experts that do not err, half of a usual update that imitates its search without reading outcomes.
# Read: data/metrics/evaluate-0.json is the fine-tuned policy, evaluate-1.json is InversePRM's.
inverse=$(python -m tasks.frame.profile inverse) || exit
few="-S demos.games=2000 -S demos.knowledge=1.0 -S evaluate.decoding=[greedy,sample]"
search="-S policy.method=expert_iteration -S policy.imitates=expert_like -S policy.learning_rate=1.0e-3 -S policy.steps=420 -S policy.batch_tokens=2048 -S search.games=1800"
sh recipes/experiment experts-search-0.0 $inverse $search $few evaluate@0 evaluate@1
for share in 0.0 0.1 0.3; do
  sh recipes/experiment "experts-dpo-$share" $inverse $few -S demos.corrupt=$share evaluate@0 evaluate@1
done
