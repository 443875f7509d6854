/* stop.h - when a sequence is over.
 *
 * In TGI's order, after each token: the budget (an EOS as the last allowed token reports "length"),
 * EOS, the request's own stop tokens, stop sequences. A stop sequence is found wherever it ends: at
 * the end of a token, inside one, or after any number of them, in time linear in the text (Knuth,
 * Morris, Pratt). The stop text itself stays in the output; what a token holds behind it is cut
 * off. */
#ifndef MODEL_SERVER_SAMPLE_STOP_H
#define MODEL_SERVER_SAMPLE_STOP_H
#include "common/err.h"
#include "model-server/backend/draw.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stop_reason { STOP_NOT, STOP_LENGTH, STOP_EOS, STOP_TOKEN, STOP_SEQUENCE };

struct stop_rules {
    uint32_t max_new_tokens;
    bool ignore_eos;
    const uint32_t *eos; /* borrowed */
    uint32_t n_eos;
    uint32_t min_new_tokens; /* before so many only the budget ends it */
    const uint32_t *tokens;  /* of the request; copied */
    size_t n_tokens;
};
struct stop {
    struct stop_rules rules;
    uint32_t *tokens;   /* what rules.tokens points to */
    uint32_t generated; /* tokens counted so far */
    struct stop_match *m;
    size_t n;
};

/* Stop texts are copied; empty ones are ignored. */
int stop_init(struct stop *s, const struct stop_rules *r, char *const *texts, size_t n,
              struct err *e);
void stop_free(struct stop *s);
/* While the answer is shorter than its least length, `generated` tokens: -inf for the tokens that
 * would end it. */
void stop_forbid(const struct stop *s, uint32_t generated, float *row, size_t vocab);
/* Which tokens these are. */
void stop_forbidden(const struct stop *s, uint32_t generated, struct id_list out[2]);
/* Does this token end the answer, whatever comes with it? */
bool stop_ends(const struct stop *s, uint32_t id);
/* Count `id`, whose text is text[0..*len). With STOP_SEQUENCE, *len is lowered to the end of the
 * stop text (the earliest one, if several end in this token); with STOP_TOKEN to 0. */
enum stop_reason stop_push(struct stop *s, uint32_t id, const char *text, size_t *len);
#endif
