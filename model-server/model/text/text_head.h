/* text_head.h - converts the hidden states of a text to its vector or its scores: pooling, then
 * small dense layers. On the host, in fp32, because a few rows per text are little work compared
 * with its layers.
 *
 * The files of sentence-transformers (common/model/sentence.h) and the class in config.json define
 * the operations: poolers and classifiers of BERT, RoBERTa, ModernBERT, and decoders with a score.
 * One thread; immutable after loading. */
#ifndef MODEL_SERVER_MODEL_TEXT_HEAD_H
#define MODEL_SERVER_MODEL_TEXT_HEAD_H
#include "common/model/sentence.h"
#include "model-server/model/checkpoint/checkpoint.h"

enum head_act {
    HEAD_PLAIN,
    HEAD_TANH,
    HEAD_GELU,
    HEAD_GELU_TANH,
    HEAD_RELU,
    HEAD_SIGMOID,
    HEAD_SILU,
    HEAD_ELU
};
/* y = act(W x + b) + R x, normalised if `norm` is set (ModernBERT, LayerNorm). `unit`: x is divided
 * by its length before. */
struct head_stage {
    uint32_t in, out;
    float *w, *b;         /* [out][in], NULL: y = x; [out] or NULL */
    float *norm, *norm_b; /* [out] or NULL */
    bool residual;        /* x is added */
    float *r;             /* [out][in] that multiplies it, or NULL */
    float norm_eps;
    enum head_act act;
    bool unit;
};
enum { HEAD_MAX_STAGES = SENTENCE_MAX_DENSE + 2, TEXT_HEAD_SPECIAL = 4 };

/* A logit of the cosine of a text's vector and an image's: scale * cosine + plus. scale 0: the
 * files do not say. `each`: its sigmoid is a probability (SigLIP); else a softmax over several
 * gives them (CLIP). */
struct head_cosines {
    float scale, plus;
    bool each;
};
struct text_head {
    enum model_task task;       /* never TASK_AUTO, TASK_GENERATE */
    unsigned pooling;           /* POOL_* */
    unsigned order[POOL_MODES]; /* of several, as in struct sentence */
    enum sparse_pooling sparse; /* instead; see text_head_add_logits() */
    bool sparse_twice;
    uint32_t special[TEXT_HEAD_SPECIAL], n_special; /* SPARSE_LEXICAL: ids without a weight */
    struct head_stage stages[HEAD_MAX_STAGES];
    uint32_t n_stages, row_stages; /* the first row_stages are of a token: see text_head_tokens() */
    /* of a row of hidden states; of the result; of a token, if all are asked for */
    uint32_t hidden, width, row_width;
    struct head_cosines cosines;
    bool asks_yes_no; /* TASK_RERANK by the head's rows of two tokens */
    char **labels;    /* [width] of TASK_CLASSIFY, TASK_TOKEN_CLASSIFY and TASK_RERANK, or NULL */
};

struct text_head_options {
    const char *dir; /* NULL: random weights of an embedding model */
    const struct sentence *sentence;
    const struct checkpoint *c; /* NULL with dir */
    const struct arch *arch;
    enum model_task task;
    uint32_t hidden, vocab, n_layers;
    bool both_ways; /* bidirectional; else only the last token has seen all others */
    /* TASK_RERANK of a decoder without a score: ids of these tokens, UINT32_MAX: not in the
     * vocabulary; yes_alone: there is no second one */
    uint32_t yes, no;
    bool yes_alone;
    /* SPARSE_LEXICAL: as text_head.special */
    uint32_t special[TEXT_HEAD_SPECIAL], n_special;
    const char *lm_head; /* and the names of its head and of its embedding, which may be the same */
    const char *embed;
    const char *vector; /* the matrix of W_VECTOR without ".weight", or NULL */
};
/* ERR_VALIDATION for invalid files; call text_head_free() in either case. */
int text_head_load(struct text_head *h, const struct text_head_options *o, struct err *e);
void text_head_free(struct text_head *h);

/* If only one row of a text is needed: the first (POOL_CLS), the last (POOL_LAST); or 0: all. */
unsigned text_head_row(const struct text_head *h);
/* out [width] of a text with hidden states rows [n][hidden], of which pooling excludes the first
 * `skip`. If text_head_row() is not 0, rows is only that row. work: text_head_work() floats. */
void text_head_run(const struct text_head *h, const float *rows, uint32_t n, uint32_t skip,
                   float *out, float *work);
size_t text_head_work(const struct text_head *h);
/* With `row_stages`: out [n][row_width] of rows [n][hidden]. */
void text_head_tokens(const struct text_head *h, const float *rows, uint32_t n, float *out,
                      float *work);
/* With SPARSE_LEXICAL: out [width] of a text with these ids [n] and hidden states rows [n][hidden].
 */
void text_head_lexical(const struct text_head *h, const float *rows, const uint32_t *ids,
                       uint32_t n, float *out);
/* With another `sparse`: adds the logits [vocab] of one more token of a text to out [width], which
 * begins with zeros, and completes it after the last one. */
void text_head_add_logits(const struct text_head *h, const float *logits, float *out);
void text_head_end_logits(const struct text_head *h, float *out);
#endif
