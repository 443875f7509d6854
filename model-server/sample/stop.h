/* stop.h - stop criteria of a sequence.
 *
 * After each token they are checked in TGI's order: the token budget (an EOS as the last allowed
 * token reports "length"), EOS, the request's stop tokens, stop sequences. A stop sequence may end
 * inside a token and span any number of tokens. It is found in time linear in the text (Knuth,
 * Morris, Pratt). The output includes the stop text and ends with it. */
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
    uint32_t min_new_tokens; /* before that many tokens only the budget ends a sequence */
    const uint32_t *tokens;  /* [n_tokens] the request's stop tokens; stop_init() copies them */
    size_t n_tokens;
};
struct stop {
    struct stop_rules rules;
    uint32_t *tokens;   /* owned copy of rules.tokens */
    uint32_t generated; /* tokens counted so far */
    struct stop_match *m;
    size_t n;
};

/* Prepares `s` for one sequence. texts[n] are the stop sequences: they are copied, and empty ones
 * are ignored. The caller calls stop_free(). */
int stop_init(struct stop *s, const struct stop_rules *r, char *const *texts, size_t n,
              struct err *e);
void stop_free(struct stop *s);
/* Masks (-inf) the tokens that would end the sequence while it has fewer than min_new_tokens.
 * `generated`: its tokens so far. */
void stop_forbid(const struct stop *s, uint32_t generated, float *row, size_t vocab);
/* The same tokens as two lists, which `s` owns. */
void stop_forbidden(const struct stop *s, uint32_t generated, struct id_list out[2]);
/* True if `id` alone ends the sequence: EOS or a stop token. */
bool stop_ends(const struct stop *s, uint32_t id);
/* Adds token `id`, whose text is text[0..*len), and returns whether the sequence ends.
 * STOP_SEQUENCE lowers *len to the end of the first stop text that ends in this token; STOP_TOKEN
 * lowers it to 0.
 */
enum stop_reason stop_push(struct stop *s, uint32_t id, const char *text, size_t *len);
#endif
