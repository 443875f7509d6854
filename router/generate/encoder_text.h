/* encoder_text.h - prompts of models with an encoder: the text that it reads, and the tokens with
 * which the decoder begins.
 *
 * Models that translate have a token for each language: "eng_Latn" in NLLB (arXiv 2207.04672),
 * "en_XX" in mBART (2001.08210), "__en__" in M2M100 (2010.11125). The tokenizer puts that of the
 * source beside the text, and the answer begins with that of the target. */
#ifndef ROUTER_GENERATE_ENCODER_TEXT_H
#define ROUTER_GENERATE_ENCODER_TEXT_H
#include "router/generate/validate.h"

/* The first token of the answer: of the request (forced_bos_token_id or tgt_lang), else the
 * model's; not set: none. ERR_VALIDATION: there is no such token or language, or a model without an
 * encoder is asked for it. */
int answer_first(const struct validator *v, const struct ask *q, struct opt_u64 *first,
                 struct err *e);
/* With q->src_lang: *ids [n] becomes a copy in `a` with that language in place of the tokenizer's.
 * ERR_VALIDATION: no such language, or the tokenizer put none. */
int text_language(const struct validator *v, const struct ask *q, struct arena *a,
                  const uint32_t **ids, uint32_t n, struct err *e);
/* The prompt of `r`, with its image if it has one, becomes the text of the decoder's first tokens.
 * ERR_VALIDATION: it has several images. */
int move_to_encoder(const struct validator *v, struct opt_u64 first, struct arena *a,
                    struct gen_request *r, struct err *e);
#endif
