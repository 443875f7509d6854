/* embed.h - what a route wants of texts: vectors or scores, in place of generations.
 *
 *   worker    route->work(): parse, then call_texts(): permits, tokens, lengths
 *   shards    router/embed
 *   worker    render(): the answer from the numbers
 *   loop      the answer goes out
 *
 * The state is the call's and lies in its arena. */
#ifndef ROUTER_CALL_EMBED_H
#define ROUTER_CALL_EMBED_H
#include "router/call/call.h"
#include "router/embed/embedder.h"

/* A text, a pair of texts, or the ids of one text as the client has them. */
struct text_input {
    const char *text, *second; /* ids: text NULL; second NULL: one text */
    size_t n, n_second;
    const uint32_t *ids; /* taken as they are */
    uint32_t n_ids;
};
struct texts_ask {
    const struct text_input *in;
    uint32_t n;
    const char *prompt_name; /* of config_sentence_transformers.json; NULL: the default one */
    const char *instruction; /* of a reranker that is asked in words; NULL: the usual one */
    bool all;                /* hidden states of all tokens */
    bool plain;              /* no prompt in front, not even the default one */
    bool truncate, left;     /* cut what is too long, from its beginning */
    uint32_t most;           /* tokens of a text, with truncate; 0: what the model takes */
    int32_t priority;
    const char *user;
};

struct call_texts {
    struct embed_job job;
    struct call *call;
    int (*render)(struct call *c, struct err *e);
    void *state;     /* the protocol's own, in the arena */
    uint64_t tokens; /* of all texts */
};

/* On the worker. ERR_TASK where the model is not for it: `tasks` has a bit 1 << TASK_* for each
 * that is. The texts of `q` live until the answer. */
int call_texts(struct call *c, const struct texts_ask *q, unsigned tasks,
               int (*render)(struct call *c, struct err *e), void *state, struct err *e);
/* ERR_TASK if this model is not for such calls; before a body is looked at. */
int call_texts_task(const struct call *c, unsigned tasks, struct err *e);

/* The result of a text, [width]; for routes' render(). */
static inline const float *call_text_row(const struct call_texts *t, uint32_t i)
{
    return t->job.values + (size_t)i * t->job.width;
}
/* x / max(||x||, 1e-12). */
void texts_normalize(float *x, uint32_t n);
float texts_sigmoid(float x);

/* call.c's: the job is on its way, or was refused; it comes back to the loop. */
void call_texts_send(struct call *c);
#endif
