/* suppress.h - what generation_config.json says of tokens: those that answers never have, and what
 * transformers would do with an answer and this server does not. */
#ifndef ROUTER_GENERATE_SUPPRESS_H
#define ROUTER_GENERATE_SUPPRESS_H
#include "common/err.h"
#include "common/json/json.h"
#include "router/request/request.h"

/* Reads `suppress_tokens` and `bad_words_ids` of the object; `where` names it in errors. The result
 * belongs to the caller: suppress_free(). ERR_VALIDATION: not lists of tokens, or too many. */
int suppress_read(const cJSON *o, const char *where, struct bad_words *out, struct err *e);
void suppress_free(struct bad_words *w);
/* Writes the names of members that would change an answer in transformers and have no effect here,
 * separated by ", ". As many as fit; "": there are none. */
void suppress_ignored(const cJSON *o, char *out, size_t n);
/* Appends those of `more` whose tokens are all below `vocab_size` to *w, in the arena, or shares
 * `more`, which must outlive *w. */
int suppress_join(const struct bad_words *more, uint32_t vocab_size, struct arena *a,
                  struct bad_words *w, struct err *e);
#endif
