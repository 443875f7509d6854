/* tei.h - shared by the routes of text-embeddings-inference (its HTTP API, July 2026). */
#ifndef ROUTER_API_TEI_TEI_H
#define ROUTER_API_TEI_TEI_H
#include "router/call/embed_body.h"

/* Reads `truncate`, `truncation_direction` and `prompt_name` of `o`. */
void tei_options(struct body *b, struct object o, struct texts_ask *ask);
/* The same, for texts_row.read(). */
uint32_t tei_read(struct call *c, struct body *b, struct texts_ask *ask, void *state);

/* Fails b with ERR_EMPTY if a text is empty. */
void tei_not_empty(struct body *b, const struct texts_ask *ask);

extern const struct texts_row row_tei_embed, row_tei_predict, row_tei_similarity;
/* TEI's rerank, or Cohere's of a body with `documents`, as texts_work_form(). */
const struct texts_row *tei_rerank_form(const struct call *c, const struct body *b);
#endif
