/* embed_body.h - texts and their options in a JSON body, as the protocols of embedders have them.
 */
#ifndef ROUTER_CALL_EMBED_BODY_H
#define ROUTER_CALL_EMBED_BODY_H
#include "router/body/body.h"
#include "router/call/embed.h"

/* A string, a list of strings, a list of ids, or a list of such lists, under `key`. NULL: the body
 * has been failed. *batch: it is a list of texts. An empty list, and an empty text, are ERR_EMPTY
 * in *e. */
const struct text_input *body_texts(struct body *b, struct object o, const char *key, uint32_t *n,
                                    bool *batch);
/* A list of strings, which may be empty ones, or of objects with a string `text`. */
const struct text_input *body_documents(struct body *b, struct object o, const char *key,
                                        uint32_t *n);
/* ERR_VALIDATION where there are more than `most`. */
int texts_count(const struct call *c, uint32_t n, uint32_t most, struct err *e);
/* What TEI's routes allow: --max-client-batch-size, or 32. */
uint32_t texts_most(const struct call *c);

/* "[0.1,...]". */
void texts_json(struct buf *out, const float *x, uint32_t n);
/* Indices of `n` scores, the best first, of equals the lower one; in the arena. NULL: no memory. */
uint32_t *texts_ranking(struct call *c, const float *score, uint32_t n);
#endif
