/* embed.h - calls that need embeddings or scores of texts, instead of generations.
 *
 *   worker    route->work(): parse, then call_texts(): permits, tokens, lengths
 *   shards    router/embed
 *   worker    render(): writes the answer from the values
 *   loop      sends the answer
 *
 * The state belongs to the call and lies in its arena. */
#ifndef ROUTER_CALL_EMBED_H
#define ROUTER_CALL_EMBED_H
#include "router/call/call.h"
#include "router/embed/embedder.h"

/* What a text of late interaction is: it has its prompt, length, filling and tokens without vectors
 * (struct sentence_late). LATE_NONE: all of its tokens have vectors. */
enum text_late { LATE_NONE, LATE_QUERY, LATE_DOCUMENT };
/* A text, a pair of texts, the token ids of one text, or a prompt with images. */
struct text_list;
struct text_input {
    const char *text, *second; /* ids: text NULL; second NULL: a single text */
    size_t n, n_second;
    const uint32_t *ids; /* used as given */
    uint32_t n_ids;
    const uint8_t *types;         /* [n_ids] token types of `ids`, or NULL: all 0 */
    uint32_t skip;                /* of `ids`: as struct embed_text */
    enum text_late late;          /* of a text: its prompt is not that of `prompt_name` */
    const struct text_list *list; /* documents of a query: nothing else is set; or NULL */
    const struct ask *shown;      /* the prompt with images: nothing else is set; or NULL */
    /* of a pair: a query or a document with images, instead of `text` or `second`; or NULL */
    const struct ask *first_shown, *second_shown;
};
struct texts_ask {
    const struct text_input *in;
    uint32_t n;
    /* key in config_sentence_transformers.json; NULL: the default prompt */
    const char *prompt_name;
    const char *adapter;     /* its name; NULL: the one that the body's `model` names, or none */
    const char *instruction; /* for a reranker that is prompted in text; NULL: the default one */
    bool all;                /* return hidden states of all tokens */
    bool plain;              /* no prompt prefix, not even the default one */
    bool truncate, left;     /* truncate long texts; left: at the start */
    uint32_t most;           /* tokens per text, with truncate; 0: the model's limit */
    int32_t priority;
    const char *user;
};

struct call_texts {
    struct embed_job job;
    struct call *call;
    int (*render)(struct call *c, struct err *e);
    void *state;     /* owned by the protocol, in the arena */
    uint64_t tokens; /* in all texts */
};

/* Worker: starts the computation. ERR_TASK if the model's task is not in `tasks`, a set of bits 1
 * << TASK_*. The texts of `q` must live until the answer. render() writes the answer to c->out. */
int call_texts(struct call *c, const struct texts_ask *q, unsigned tasks,
               int (*render)(struct call *c, struct err *e), void *state, struct err *e);
/* ERR_TASK if the model's task is not in `tasks`. For a check before the body is read. */
int call_texts_task(const struct call *c, unsigned tasks, struct err *e);

/* The values of a text, [width]. For routes' render(). */
static inline const float *call_text_row(const struct call_texts *t, uint32_t i)
{
    return t->job.values + (size_t)i * t->job.width;
}
/* x / max(||x||, 1e-12). */
void texts_normalize(float *x, uint32_t n);
float texts_sigmoid(float x);
/* Softmax of n logits; of a single one its sigmoid. */
void texts_probabilities(const float *logits, uint32_t n, float *out);
/* The same of a text's labels, if the model's files have no other function (struct sentence). */
void texts_labels(const struct call *c, const float *logits, uint32_t n, float *out);
/* The score of a pair: the sigmoid of its logit, or the logit if `raw` is set or if the model's
 * files say so. */
float texts_score(const struct call *c, float logit, bool raw);

/* Documents that one prompt of a listwise reranker ranks for a query. */
struct text_list {
    struct text_input query;
    const struct text_input *documents; /* [n] */
    uint32_t n;
};

/* Scores of vectors. Texts [0, n_first) are queries, one or as many as the n documents after them.
 * A score is the cosine of both; of an answer with all tokens the sum over a query's tokens of
 * their greatest cosine to a document's (ColBERT, arXiv 2004.12832). Of a listwise reranker the
 * cosine of their marks. [n] in the arena; NULL: out of memory. */
float *texts_cosines(struct call *c, uint32_t n_first, uint32_t n);
/* Sets what is asked of ask->n texts for such scores, of a model that embeds them or their tokens.
 */
int texts_ask_vectors(struct call *c, struct texts_ask *ask, struct text_input *in,
                      uint32_t n_first, struct err *e);
/* embed_list.c: the same of a listwise reranker. */
int texts_ask_lists(struct call *c, struct texts_ask *ask, const struct text_input *in,
                    uint32_t n_first, struct err *e);
float *texts_list_scores(struct call *c, uint32_t n_first, uint32_t n);

/* Tokens of the model's vocabulary that have no vector in a query or in a document. */
struct late_skip {
    uint32_t ids[SENTENCE_MAX_WORDS], n;
};
void late_skip_of(const struct call *c, enum text_late kind, struct late_skip *out);
/* The vectors of text i, whose first is `rows`: those that count move to the front, in order.
 * Returns how many there are. */
uint32_t late_rows(const struct call *c, const struct late_skip *skip, uint32_t i, float *rows);

/* For call.c: sends the job, or refuses it. The result returns to the loop. */
void call_texts_send(struct call *c);
#endif
