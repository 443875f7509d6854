/* sentence.h - reads the configuration of a model that computes embeddings or scores: the files of
 * sentence-transformers, and the class in config.json.
 *
 * modules.json lists the modules after the transformer (Pooling, Dense, LayerNorm, Normalize;
 * SpladePooling; of a reranker LogitScore), each in its own folder. sentence_bert_config.json has
 * the maximum length, or tokenizer_config.json. config_sentence_transformers.json has prompts that
 * precede a text. SigLIP (arXiv 2303.15343) and retrievers of page images have none of these files,
 * but config.json. */
#ifndef COMMON_SENTENCE_H
#define COMMON_SENTENCE_H
#include "common/err.h"
#include "common/model/visual_form.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* The task of a model: the values of --task, in this order. */
enum model_task {
    TASK_AUTO,      /* detected from its files */
    TASK_GENERATE,  /* text */
    TASK_EMBED,     /* one vector per text */
    TASK_RERANK,    /* one score per pair of texts */
    TASK_FILL_MASK, /* the logits of a masked token; never detected */
    TASK_CLASSIFY,  /* one score per label: detected by auto, as those below; cannot be requested */
    TASK_TOKEN_EMBED,    /* one vector per token: for late interaction (ColBERT) */
    TASK_TOKEN_CLASSIFY, /* one score per label, of each token */
    TASK_ANSWER, /* two scores of each token: an answer to a question begins, ends there (SQuAD) */
    TASK_N
};
const char *model_task_name(enum model_task t); /* "auto", "generate", ... */
extern const char *const model_task_choices[];  /* auto to fill-mask, NULL last */

/* Pooling over the rows of a text's hidden states; several are concatenated. */
enum {
    POOL_CLS = 1,
    POOL_MAX = 2,
    POOL_MEAN = 4,
    POOL_MEAN_SQRT = 8, /* the sum divided by the root of their number */
    POOL_WEIGHTED = 16, /* the mean weighted by positions, starting at 1 */
    POOL_LAST = 32
};
/* Of the logits of an encoder's head for masked tokens, after log(1 + max(0, x)): the greatest or
 * the sum over the tokens, for each token of the vocabulary (SPLADE, arXiv 2107.05720,
 * 2109.10086). Lexical weights (BGE-M3, arXiv 2402.03216): of each token of the text, except
 * special ones, max(0, w h + b) of its hidden state h; the greatest of equal tokens. Of
 * TASK_FILL_MASK: the logits of one token as they are. */
enum sparse_pooling { SPARSE_NONE, SPARSE_MAX, SPARSE_SUM, SPARSE_LEXICAL, SPARSE_FILL };
enum { POOL_MODES = 6, SENTENCE_MAX_DENSE = 8, SENTENCE_MAX_PROMPTS = 64 };

/* What makes scores of logits. */
enum score_function {
    SCORE_USUAL, /* a softmax over several labels, the sigmoid of one */
    SCORE_LOGIT,
    SCORE_SIGMOID
};

struct sentence_prompt {
    char *name, *text;
};
enum { SENTENCE_MAX_WORDS = 256 };
/* What queries and documents of late interaction are (ColBERT, arXiv 2004.12832): PyLate's keys in
 * config_sentence_transformers.json, those of sentence-transformers 6 in sentence_bert_config.json
 * and in the folder of MultiVectorMask, or the authors' artifact.metadata. */
struct sentence_late {
    uint32_t query_length, document_length; /* longer ones are cut; 0: as any text */
    /* A query is filled up to this many tokens with `token`, whose vectors score as well; 0: it is
     * not. NULL: the tokenizer's mask_token, else its eos_token. */
    uint32_t filled;
    char *token;
    bool attends; /* other tokens attend to these; else none does */
    /* Words of one token, which has no vector in a document, with `skips_queries` also in a query
     */
    char *skipped[SENTENCE_MAX_WORDS];
    uint32_t n_skipped;
    bool skips_queries;
    /* Documents are images of pages (common/model/visual_form.h); the prompt of one. Else NULL. */
    const struct visual_form *visual;
    char *page;
};
struct sentence {
    bool present;                    /* modules.json exists */
    unsigned pooling;                /* POOL_*; 0: not specified */
    unsigned order[POOL_MODES];      /* of several, as they are concatenated; 0: one alone */
    enum sparse_pooling sparse;      /* instead of `pooling` */
    bool sparse_twice;               /* log(1 + log(1 + max(0, x))) (arXiv 2504.14839) */
    bool include_prompt;             /* mean pooling includes the prompt's tokens */
    bool normalize;                  /* what the last module gives */
    uint32_t max_length;             /* tokens per text with special tokens; 0: not specified */
    uint32_t dimensions;             /* of a vector, unless a request has others; 0: all */
    char *dense[SENTENCE_MAX_DENSE]; /* folders of Dense and LayerNorm, in order */
    uint32_t n_dense;
    bool dense_is_norm[SENTENCE_MAX_DENSE]; /* LayerNorm */
    bool dense_of_unit[SENTENCE_MAX_DENSE]; /* a Normalize module is before this one */
    /* BGE-M3's vectors of tokens, by colbert_linear.pt, instead of `pooling` and Dense modules: of
     * all tokens but the first */
    bool colbert;
    bool bare; /* texts have no special tokens around them (StaticEmbedding) */
    /* SigLIP: the tokenizer's `pad_token` follows a text up to this many tokens, as one of it; 0:
     * none does */
    uint32_t padded;
    bool tokens; /* Dense modules work on each token, and nothing pools */
    struct sentence_prompt prompts[SENTENCE_MAX_PROMPTS];
    uint32_t n_prompts;
    char *default_prompt; /* a name, or NULL */
    struct sentence_late late;
    /* jina-reranker-v3 (arXiv 2509.25085): a query and its documents lie in one text, and the
     * vectors of the marks behind them are compared */
    bool listwise;
    /* A reranker with a head of one logit behind each of its last layers (FlagEmbedding's
     * LayerWiseMiniCPMForCausalLM): the number of layers before the first one; 0: no such.
     * `one_head`: the same head behind all of them. */
    uint32_t first_cut;
    bool one_head;
    /* Of a classifier's labels: `problem_type` of config.json, as in transformers' pipelines. Of a
     * reranker's pairs: `activation_fn` of a CrossEncoder. */
    enum score_function labels, pairs;
    /* A reranker whose score is the logit of a token behind the pair, minus that of another. */
    bool scores;
    uint32_t true_token, false_token; /* ids; false_token UINT32_MAX: none is subtracted */
    bool opens_answer; /* add_generation_prompt of the chat template that renders the pair */
};
/* Loads from a model's folder `dir`, or a GGUF file (common/gguf/pooling.h).
 * ERR_VALIDATION, one line that names the file, for invalid or unsupported settings. Call
 * sentence_free() in either case. */
int sentence_load(struct sentence *s, const char *dir, struct err *e);
void sentence_free(struct sentence *s);
/* Applies a value of --pooling, an index of sentence_pooling_choices; 0 changes nothing. */
void sentence_set_pooling(struct sentence *s, uint32_t choice);
extern const char *const sentence_pooling_choices[]; /* auto first, NULL last */
/* The text of prompt `name`, or of the default prompt if NULL. NULL: none. */
const char *sentence_prompt(const struct sentence *s, const char *name);
/* The name of the prompt for a kind of text, as requests call it: that very name, or where `word`
 * means a query or a document, the files' name of that. NULL: there is none. */
const char *sentence_prompt_for(const struct sentence *s, const char *word);
/* True if `word` means a query or a document. */
bool sentence_kind_known(const char *word);

/* True for a classifier of the labels "yes" and "no": a reranker that asks a question. */
bool sentence_asks(const cJSON *config);

/* True for the tasks whose results are rows of tokens. */
static inline bool model_task_of_tokens(enum model_task t)
{
    return t == TASK_TOKEN_EMBED || t == TASK_TOKEN_CLASSIFY || t == TASK_ANSWER;
}
/* Detects the task for --task auto. An architecture ending in ForSequenceClassification is a
 * classifier, or a reranker if it has one label or asks; one in ForTokenClassification classifies
 * tokens; one in ForQuestionAnswering or ForQuestionAnsweringSimple answers. HF_ColBERT,
 * JinaForRanking and the classes of common/model/visual_form.h give vectors of tokens;
 * LayerWiseMiniCPMForCausalLM is a reranker. modules.json means
 * embeddings, of tokens if its Dense modules have no Pooling, or a reranker if LogitScore is there.
 * Others generate (an encoder without these files computes embeddings, see model_load()). `s` must
 * be loaded from `dir`. */
int model_task_of(const char *dir, const struct sentence *s, enum model_task *out, struct err *e);
#endif
