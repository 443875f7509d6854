/* body.h - typed reading of a JSON body, with the words in which TGI's framework refuses one.
 *
 * The first error sticks: read all fields, then look at body_failed() once. Unknown fields are
 * ignored. Strings live as long as the body. */
#ifndef ROUTER_BODY_BODY_H
#define ROUTER_BODY_BODY_H
#include "common/arena.h"
#include "common/err.h"
#include "router/request/ask.h"
#include "router/request/transfer.h"
#include <cjson/cJSON.h>

struct body {
    const char *text;
    size_t n;
    struct arena *arena;
    cJSON *root;
    struct err *e;
    bool failed;
    const char *warnings; /* of body_warn(); NULL: none */
    bool plain; /* not TGI's: null is absent in every field, and messages say it in plain words */
};
struct object { /* an object inside the body: json NULL stands for an empty one */
    const cJSON *json;
    const char *path; /* "", "parameters" */
};

/* Parse; ERR_SYNTAX. The tree is freed with the arena. */
int body_open(struct body *b, const char *text, size_t n, struct arena *a, struct err *e);
/* The same where U+0000 is data in the strings of `keys` [n_keys] of the body itself; it is C0 80
 * in them, as common/json_exact.h says: json_text_exact(). */
int body_open_texts(struct body *b, const char *text, size_t n, const char *const *keys,
                    size_t n_keys, struct arena *a, struct err *e);
static inline struct object body_root(const struct body *b) { return (struct object){b->root, ""}; }

/* The value at `key`; absent (and null) is NULL. `required`: absent is an error. */
const cJSON *body_get(struct body *b, struct object o, const char *key, bool required);
/* ERR_SHAPE: "<path>: <what> at line L column C". */
void body_fail(struct body *b, struct object o, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Say that a part of the body has no effect. The texts are joined by "; " in `warnings`, in
 * printable ASCII without quotes, so that they can stand in a header; a text that is there is not
 * repeated, and at most BODY_WARNINGS bytes are kept. */
enum { BODY_WARNINGS = 600 };
void body_warn(struct body *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "invalid type: string \"x\", expected <expected>" */
void body_mistyped(struct body *b, struct object o, const char *key, const cJSON *v,
                   const char *expected);

/* Fields that TGI refuses null in; with b->plain it is absent. */
bool body_bool(struct body *b, struct object o, const char *key, bool def);
struct object body_object(struct body *b, struct object o, const char *key, bool *given);
/* Option fields: null is absent. */
bool body_opt_bool(struct body *b, struct object o, const char *key, bool def);
struct opt_f32 body_f32(struct body *b, struct object o, const char *key);
struct opt_u64 body_u32(struct body *b, struct object o, const char *key);
struct opt_u64 body_u64(struct body *b, struct object o, const char *key);
struct opt_i64 body_i32(struct body *b, struct object o, const char *key);
const char *body_str(struct body *b, struct object o, const char *key, bool required);
/* A list of strings; with `bare` a single string is a list of one; without `null_ok` null is
 * refused. */
const char *const *body_strings(struct body *b, struct object o, const char *key, bool bare,
                                bool null_ok, uint32_t *n);
/* An object of numbers with token ids as keys: OpenAI's logit_bias; or llama.cpp's list of pairs
 * [id, number or false]. Time linear in its size. */
void body_bias(struct body *b, struct object o, const char *key, struct ask *q);
/* OpenAI's and Anthropic's `temperature`: 0 means the likeliest token, also beside a `top_p` or
 * `top_k`, which many clients always send; any other samples. */
void body_temperature(struct body *b, struct object o, struct ask *q);
/* `top_p`, where 1 is off and 0 leaves the likeliest token, and `top_k`, where 0 and -1 are off.
 * Behind body_temperature(). */
void body_cuts(struct body *b, struct object o, struct ask *q);
/* The sampling parameters of common/params.def, by their names on TGI's routes or OpenAI's. */
void body_params(struct body *b, struct object o, bool tgi, struct ask *q);
/* Is one given that asks for sampling? */
bool ask_cuts(const struct ask *q);
/* `kv_transfer_params`; NULL: nothing is asked for, or the body has been failed. */
const struct kv_transfer *body_transfer(struct body *b, struct object root);
/* A seed: whole and of 64 bits, signed or not; -1 asks for a random one, as in llama.cpp. */
struct opt_u64 body_seed(struct body *b, struct object o, const char *key);
/* How long the answer may be; -1, as in llama.cpp, asks for as much as there is room for. */
struct opt_u64 body_length(struct body *b, struct object o, const char *key);
/* ignore_eos, stop_token_ids and, under the name `min`, the least length. */
void body_ending(struct body *b, struct object o, const char *min, struct ask *q);
/* vLLM's allowed_token_ids, and truncate_prompt_tokens, where -1 means `max_input`. */
void body_tokens(struct body *b, struct object o, uint32_t max_input, struct ask *q);
/* vLLM's logprob_token_ids: the tokens whose log-probabilities are the alternatives. */
void body_logprob_ids(struct body *b, struct object o, struct ask *q);
/* A list of token ids; `v` is an array. NULL, and *n 0: the body has been failed. */
const uint32_t *body_ids(struct body *b, struct object o, const char *key, const cJSON *v,
                         uint32_t *n);

/* Where the value of a dotted path stands in a valid JSON text (for u64 and for error columns): its
 * offset and length, false if it is not there. */
bool body_locate(const char *text, size_t n, const char *path, const char *key, size_t *at,
                 size_t *len);
/* `model` of a body that is not parsed yet: the first member of that name, if it is a string; NULL:
 * none. In `a`. */
const char *body_model(const char *p, size_t n, struct arena *a);
#endif
