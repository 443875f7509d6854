/* rerank.h - Cohere's rerank API, also used by Jina and vLLM. */
#ifndef ROUTER_API_COHERE_RERANK_H
#define ROUTER_API_COHERE_RERANK_H
#include "router/call/embed_body.h"

/* Of bodies with `documents`. */
extern const struct texts_row row_cohere_rerank;
#endif
