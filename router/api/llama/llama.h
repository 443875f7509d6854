/* llama.h - llama-server's routes /completion and /infill.
 *
 * Requests are parsed into the struct openai of /v1/completions, with llama-server's names and
 * defaults; answers have its members. Unsupported sampler or slot options are refused, or named in
 * the header Warning if they affect only speed. */
#ifndef ROUTER_API_LLAMA_LLAMA_H
#define ROUTER_API_LLAMA_LLAMA_H
#include "router/api/openai/openai.h"

struct llama {        /* state of a call; in its arena */
    bool list;        /* several prompts or choices: the answer is a list */
    bool with_tokens; /* return_tokens: include the ids of the answer's tokens */
    uint32_t n_probs; /* alternatives per token; 0: no probabilities */
    /* t_max_predict_ms in ns: ends at the first line break after this time */
    int64_t predict_ns;
    const char *const *fields; /* response_fields; n_fields 0: all */
    uint32_t n_fields;
};
enum { LLAMA_FIELD_MAX = 200 };

/* Parses a body with `prompt` (/completion), or with `input_prefix`, `input_suffix` and
 * `input_extra` (/infill), and creates the generations. ERR_SYNTAX, ERR_SHAPE, ERR_VALIDATION. */
int llama_completion(struct call *c, bool infill, struct err *e);

/* infill.c: builds the prompt from prefix and suffix with the model's fill-in-the-middle tokens
 * (arXiv 2207.14255). ERR_VALIDATION if its vocabulary has none; the body may be failed instead. */
int llama_infill(struct call *c, struct body *b, struct ask *q, struct err *e);

/* bias.c: entries of `logit_bias` that name tokens by a text become entries with their ids. */
int llama_bias(struct call *c, struct body *b, struct err *e);
/* fields.c: of the object at out->p + from only the members that were asked for. */
void llama_select(struct buf *out, size_t from, const struct llama *l);

/* route_slots.c: how many generations run at a time, at most. */
uint32_t llama_slots(const struct edge *g);

/* answer.c */
extern const struct format llama_object, llama_stream;
/* Appends the defaults as ,"generation_settings"-like members, for /props: the server's, where it
 * has some, else llama-server's. */
void llama_defaults(const struct sampling_defaults *d, struct buf *out);
enum { LLAMA_TOP_K = 40 };
#define LLAMA_TEMPERATURE 0.8f
#define LLAMA_TOP_P       0.95f
#define LLAMA_MIN_P       0.05f
#endif
