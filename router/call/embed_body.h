/* embed_body.h - parses texts and their options in the JSON bodies of embedding protocols. */
#ifndef ROUTER_CALL_EMBED_BODY_H
#define ROUTER_CALL_EMBED_BODY_H
#include "router/body/body.h"
#include "router/call/embed.h"

/* How a protocol asks for values of texts. Except in TEI's routes, null means absent in every
 * field. */
struct texts_row {
    unsigned tasks;       /* of models that have it, as call_texts() */
    const char *key;      /* of the texts; NULL: read() sets ask->in */
    size_t state;         /* bytes of the protocol's state, which render() finds in c->texts */
    struct texts_ask ask; /* defaults */
    /* Reads what is beside the texts, into `state`, which is zeros before. Returns how many texts
     * are allowed. An error fails the body; texts_failed() does, with one that is in b->e. */
    uint32_t (*read)(struct call *c, struct body *b, struct texts_ask *ask, void *state);
    int (*render)(struct call *c, struct err *e);
};
static inline uint32_t texts_failed(struct body *b) { return b->failed = true, 0; }
/* For route.work(): reads the body and starts the computation. */
int texts_work(struct call *c, const struct texts_row *row, struct err *e);
/* The same of a path with several forms of bodies. form() selects the row, whose `tasks` include
 * the model's; it is called if that is in `tasks`. */
int texts_work_form(struct call *c, unsigned tasks,
                    const struct texts_row *(*form)(const struct call *c, const struct body *b),
                    struct err *e);

/* Fails the body with ERR_EMPTY: `key` cannot be empty. */
void body_empty(struct body *b, const char *key);
/* Reads `key`: a string, a list of strings, a list of ids, or a list of such lists. NULL: the body
 * was failed. *batch: it is a list of texts. An empty list or text is ERR_EMPTY in *e. */
const struct text_input *body_texts(struct body *b, struct object o, const char *key, uint32_t *n,
                                    bool *batch);
/* Reads a list of strings, which may be empty, or of objects with a string `text`. */
const struct text_input *body_documents(struct body *b, struct object o, const char *key,
                                        uint32_t *n);
/* Reads under `key` how many numbers of a vector are kept: from `least` to the model's width. If it
 * is absent: as many as the model's files say (`truncate_dim`), or 0: all of them. */
uint32_t texts_dimensions(const struct call *c, struct body *b, struct object o, const char *key,
                          uint32_t least);
enum { TEXTS_MOST_LATE = 1024 }; /* whose tokens' vectors are kept: texts_cosines() */
/* ERR_VALIDATION if there are more than `most`. */
int texts_count(const struct call *c, uint32_t n, uint32_t most, struct err *e);
/* The limit of TEI's routes: --max-client-batch-size, or 32. */
uint32_t texts_most(const struct call *c);

/* Appends "[0.1,...]". */
void texts_json(struct buf *out, const float *x, uint32_t n);
/* The head of vLLM's list of results up to its first item; its id is of `kind`. */
void texts_list_begin(struct call *c, const char *kind);
/* Ends an answer with its usage. `completion`: with completion_tokens, which are 0. */
void texts_usage(struct call *c, bool completion);
/* Indices of `n` scores in descending order; equal scores by index. In the arena. NULL: out of
 * memory. */
uint32_t *texts_ranking(struct call *c, const float *score, uint32_t n);
/* Sets the prompt for a kind of text (sentence_prompt_for()). False: `word` is neither a query nor
 * a document, and no prompt's name; then there is none. */
bool texts_prompt(const struct call *c, const char *word, struct texts_ask *ask);
/* Reads which of the model's prompts precedes the texts: sentence-transformers' `prompt_name`,
 * `input_type` (NVIDIA, Cohere, Voyage) or Jina's `task`. A word that means neither a query nor a
 * document must be the name of a prompt. */
void body_prompt(const struct call *c, struct body *b, struct object root, struct texts_ask *ask);
/* Reads `input_type` of late interaction, query or document, and makes ask's texts of that kind;
 * `usual` without it. LATE_NONE, with a warning about the word, for another model. */
enum text_late body_late(const struct call *c, struct body *b, struct object root,
                         struct texts_ask *ask, enum text_late usual);
/* Reads vLLM's `truncate_prompt_tokens`: longer texts are cut to it; -1: to as many as fit; and
 * `truncation_side`. */
void body_truncate(struct body *b, struct object root, struct texts_ask *ask);
#endif
