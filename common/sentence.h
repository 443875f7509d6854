/* sentence.h - what a folder says of a model that turns texts into vectors or scores: the files of
 * sentence-transformers, and the class in config.json.
 *
 * modules.json lists the modules behind the transformer (Pooling, Dense, Normalize), each in a
 * folder of its own; sentence_bert_config.json has the longest text; config_sentence_transformers
 * .json has prompts that stand before a text. */
#ifndef COMMON_SENTENCE_H
#define COMMON_SENTENCE_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

/* What a model is served as: the words of --task, in this order. */
enum model_task {
    TASK_AUTO,     /* as its files say */
    TASK_GENERATE, /* text */
    TASK_EMBED,    /* a vector for each text */
    TASK_RERANK,   /* a score for each pair of texts */
    TASK_CLASSIFY, /* a score for each label: what auto finds, never asked for */
    TASK_N
};
const char *model_task_name(enum model_task t); /* "auto", "generate", ... */
extern const char *const model_task_choices[];  /* auto to rerank, NULL last */

/* One row of a text's hidden states out of many; several are laid side by side, in this order. */
enum {
    POOL_CLS = 1,
    POOL_MAX = 2,
    POOL_MEAN = 4,
    POOL_MEAN_SQRT = 8, /* the sum over the root of their number */
    POOL_WEIGHTED = 16, /* the mean weighted by positions, from 1 on */
    POOL_LAST = 32
};
enum { SENTENCE_MAX_DENSE = 4, SENTENCE_MAX_PROMPTS = 64 };

struct sentence_prompt {
    char *name, *text;
};
struct sentence {
    bool present;        /* there is a modules.json */
    unsigned pooling;    /* POOL_*; 0: the files do not say */
    bool include_prompt; /* the prompt's tokens count in a mean */
    bool normalize;
    uint32_t max_length;             /* tokens of a text, special ones included; 0: not said */
    char *dense[SENTENCE_MAX_DENSE]; /* folders, in order */
    uint32_t n_dense;
    struct sentence_prompt prompts[SENTENCE_MAX_PROMPTS];
    uint32_t n_prompts;
    char *default_prompt; /* a name, or NULL */
};
/* `dir` is a model's folder (a GGUF file has none of these: all is empty). ERR_VALIDATION, one line
 * that names the file, for what cannot be meant or is not supported; sentence_free() either way. */
int sentence_load(struct sentence *s, const char *dir, struct err *e);
void sentence_free(struct sentence *s);
/* The text of the prompt `name`, or of the default one where name is NULL; NULL: there is none. */
const char *sentence_prompt(const struct sentence *s, const char *name);

/* What --task auto means for the folder: `architectures` ending in ForSequenceClassification ask
 * for a classifier, a reranker where it has one label; modules.json asks for embeddings; all else
 * generates (a decoder; an encoder that says nothing of itself embeds, see model_load()). `s` was
 * loaded from `dir`. */
int model_task_of(const char *dir, const struct sentence *s, enum model_task *out, struct err *e);
#endif
