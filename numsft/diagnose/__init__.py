"""`python -m numsft.diagnose MODEL`: what a model does at digits, before or after training.

`diagnose.json` holds, with entropies in nats and shares from 0 to 1:

* `model`, `base`, `gguf_file`: the name given; for an adapter its base; the GGUF file.
* `vocabulary`: `kind`, `count` (C), `longest` (digits in a token), `digit_ids` (of 0..9, or null),
  `decimal_point_ids`.
* `text`: `source`, `rows`, `tokens` (predicted ones), `number_tokens` (M), `numbers`.
* `digit_logit`: `mean`, `std`, `min`, `max` of the M * C raw logits of number tokens at number positions.
* `digit_mass`: mean full-softmax mass on the number tokens at number positions.
* `digit_accuracy`: share of number positions whose label has the highest logit of the whole vocabulary.
* `number_loss`: null, or `name`, `options`, `weight`, `place_weighting`, `depends_on_level`, `value` (as
  training logs it, without the weight), `wrong_way` (share of number positions where its gradient pushes the
  right token *down*), `wrong_way_combined` (the same for cross-entropy + weight * number loss, the text being
  one optimiser step).
* `entropy`: means `digit`, `other` (full vocabulary, at number positions and elsewhere), `digit_subspace`
  (over the C number tokens, at number positions); `digit_subspace_max` (ln C).
* `embeddings`: null, or `input` and `lm_head` (null where tied), each `cosine` (10 x 10), `order_correlation`
  (of the cosines with 1 - |i - j| / 9), `projection` (10 x 2, on the principal components), `explained`
  (their shares of the variance).
* `warnings`: sentences.

`entropy.png` is the paper's Fig. 3 on teacher-forced text, `digit_embeddings.png` its Fig. 2
(https://arxiv.org/abs/2605.20369).
"""
