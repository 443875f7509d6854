/* tei.h - shared by the routes of text-embeddings-inference (its HTTP API, July 2026). */
#ifndef ROUTER_API_TEI_TEI_H
#define ROUTER_API_TEI_TEI_H
#include "router/call/embed_body.h"

/* Reads `truncate`, `truncation_direction` and `prompt_name` of `o`. */
void tei_options(struct body *b, struct object o, struct texts_ask *ask);
/* The same, for texts_row.read(). */
uint32_t tei_read(struct call *c, struct body *b, struct texts_ask *ask, void *state);

int tei_embed(struct call *c, struct err *e);      /* route_embed.c */
int tei_predict(struct call *c, struct err *e);    /* route_predict.c */
int tei_rerank(struct call *c, struct err *e);     /* route_rerank.c */
int tei_similarity(struct call *c, struct err *e); /* route_similarity.c */
#endif
