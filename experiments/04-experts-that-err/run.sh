# InversePRM against fine-tuning on the same 2,000 demonstrations, when the expert errs at a share of its turns. The policy
# follows its preferences; and with an expert that does not err, it imitates the search without reading outcomes.
# Read: data/metrics/evaluate-0.json is the fine-tuned policy, evaluate-1.json is InversePRM's.
few="demos.games=2000 demos.knowledge=1.0 evaluate.decoding=[greedy,sample]"
search="method={name: expert_iteration, games: 1800, search: beam_1x16, keeps: expert_like, replay: 0.0, \
  learning_rate: 1.0e-3, steps: 420, batch_tokens: 2048}"
sh experiments/run experts-search-0.0 no_memory inverse "$search" $few -- evaluate@0 evaluate@1
for share in 0.0 0.1 0.3; do
  sh experiments/run "experts-dpo-$share" no_memory inverse $few demos.corrupt=$share -- evaluate@0 evaluate@1
done
