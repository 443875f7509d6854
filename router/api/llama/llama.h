/* llama.h - llama-server's own routes: /completion and /infill.
 *
 * Requests are read into the struct openai that /v1/completions uses, with llama-server's names and
 * defaults; answers have its members. What its samplers or slots do and this server does not is
 * refused, or named in the header Warning where it changes no more than the pace. */
#ifndef ROUTER_API_LLAMA_LLAMA_H
#define ROUTER_API_LLAMA_LLAMA_H
#include "router/api/openai/openai.h"

struct llama {        /* of a call; in its arena */
    bool list;        /* several prompts: the answer is a list */
    bool with_tokens; /* return_tokens: ids of the answer's tokens are told */
    uint32_t n_probs; /* alternatives of each token; 0: no probabilities */
    int64_t
        predict_ns; /* t_max_predict_ms: ends behind the first line break once it took so long */
};

/* A body with `prompt` (/completion), or with `input_prefix`, `input_suffix` and `input_extra`
 * (/infill), to the generations. ERR_SYNTAX, ERR_SHAPE, ERR_VALIDATION. */
int llama_completion(struct call *c, bool infill, struct err *e);

/* infill.c: the prompt between prefix and suffix in the model's own tokens (arXiv 2207.14255).
 * ERR_VALIDATION for a model whose vocabulary has none; the body may be failed instead. */
int llama_infill(struct call *c, struct body *b, struct ask *q, struct err *e);

/* answer.c */
extern const struct format llama_object, llama_stream;
/* ,"generation_settings"-like members of the defaults, for /props. */
void llama_defaults(struct buf *out);
enum { LLAMA_TOP_K = 40 };
#define LLAMA_TEMPERATURE 0.8f
#define LLAMA_TOP_P       0.95f
#define LLAMA_MIN_P       0.05f
#endif
