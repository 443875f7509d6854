/* body.h - typed reading of a JSON body, with the error messages of TGI's framework.
 *
 * The first error is kept: read all fields, then check `failed` once. Unknown fields have no
 * effect; body_unread() names them. Strings live as long as the body. */
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
    const char *warnings; /* from body_warn(); NULL: none */
    const char *list;     /* whose item is being read: body_item(); NULL: none */
    uint32_t item;
    /* not a TGI route: null means absent in every field, and messages use plain words */
    bool plain;
};
struct object { /* an object inside the body; JSON null is read as an empty object */
    const cJSON *json;
    const char *path; /* "", "parameters" */
};

/* Parses the text; ERR_SYNTAX. The tree is freed with the arena. */
int body_open(struct body *b, const char *text, size_t n, struct arena *a, struct err *e);
/* As body_open(), but allows U+0000 in what becomes a prompt: agents send what they read from
 * files. It is stored as C0 80, see body_bytes(). */
int body_open_prompt(struct body *b, const char *text, size_t n, struct arena *a, struct err *e);
/* The bytes of a text [*n] that may have been read so, with U+0000 as a byte 0: `text` itself, or a
 * copy in `a`. NULL: out of memory. */
const char *body_bytes(struct arena *a, const char *text, size_t *n);
static inline struct object body_root(const struct body *b) { return (struct object){b->root, ""}; }

/* The value at `key`; NULL if absent or null. `required`: absence is an error. */
const cJSON *body_get(struct body *b, struct object o, const char *key, bool required);
/* Fails the body with ERR_SHAPE: "<path>: <what> at line L column C". */
void body_fail(struct body *b, struct object o, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* From now on errors of `list`, a member of the body, say that they are about this item of it:
 * "messages[3]: missing field `role`". NULL: of no list. With b->plain alone. */
static inline void body_item(struct body *b, const char *list, uint32_t item)
{
    b->list = list;
    b->item = item;
}
/* Fails the body with an error of this kind: "`key` is not supported". */
void body_unsupported(struct body *b, enum err_kind kind, const char *key);
/* Fails the body where an allocation failed: the client's fault if its arena is full, ours (500)
 * otherwise. */
void body_nomem(struct body *b, struct object o, const char *key);
/* Records that a part of the body has no effect. Texts are joined by "; " in `warnings`, in
 * printable ASCII without quotes, so that they fit into a header. Duplicates are skipped, and at
 * most BODY_WARNINGS bytes are kept. */
enum { BODY_WARNINGS = 600 };
void body_warn(struct body *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Names by body_warn() the members of `o` that nothing has looked up: call it when all is read.
 * `o`: the root, or what body_object() returned. Left out is what asks for nothing (null, false, 0,
 * empty values), and what is about accounting, storage and caches, where clients need no word. */
void body_unread(struct body *b, struct object o);
/* Fails the body with "invalid type: string \"x\", expected <expected>". */
void body_mistyped(struct body *b, struct object o, const char *key, const cJSON *v,
                   const char *expected);

/* Fields for which TGI refuses null; with b->plain null means absent. */
bool body_bool(struct body *b, struct object o, const char *key, bool def);
struct object body_object(struct body *b, struct object o, const char *key, bool *given);
/* Optional fields: null means absent. */
bool body_opt_bool(struct body *b, struct object o, const char *key, bool def);
struct opt_f32 body_f32(struct body *b, struct object o, const char *key);
struct opt_u64 body_u32(struct body *b, struct object o, const char *key);
struct opt_u64 body_u64(struct body *b, struct object o, const char *key);
struct opt_i64 body_i32(struct body *b, struct object o, const char *key);
const char *body_str(struct body *b, struct object o, const char *key, bool required);
/* A list of strings. `bare`: a single string is accepted as a list of one. Without `null_ok` null
 * is refused. */
const char *const *body_strings(struct body *b, struct object o, const char *key, bool bare,
                                bool null_ok, uint32_t *n);
/* Reads OpenAI's logit_bias, an object with token ids as keys, or llama.cpp's list of pairs [id,
 * number or false]. Linear time. */
void body_bias(struct body *b, struct object o, const char *key, struct ask *q);
/* Reads `temperature` as OpenAI and Anthropic define it: 0 takes the most likely token, even beside
 * `top_p` or `top_k`, which many clients always send. Any other value samples. */
void body_temperature(struct body *b, struct object o, struct ask *q);
/* Reads top-p under the key `p` (1 is off, 0 leaves the most likely token) and top-k under `k` (0
 * and -1 are off). Call after body_temperature(). */
void body_cuts(struct body *b, struct object o, const char *p, const char *k, struct ask *q);
/* Reads the sampling parameters of common/params.def, by their names on TGI's or OpenAI's
 * routes. */
void body_params(struct body *b, struct object o, bool tgi, struct ask *q);
/* True if a parameter that implies sampling is set. */
bool ask_cuts(const struct ask *q);
/* Reads `kv_transfer_params`. NULL: not given, or the body was failed. */
const struct kv_transfer *body_transfer(struct body *b, struct object root);
/* Reads a seed: an integer of 64 bits, signed or not; -1 means random, as in llama.cpp. */
struct opt_u64 body_seed(struct body *b, struct object o, const char *key);
/* Reads a maximum answer length; -1 means as long as fits, as in llama.cpp. */
struct opt_u64 body_length(struct body *b, struct object o, const char *key);
/* Reads ignore_eos, stop_token_ids and, under the name `min`, the minimum length. */
void body_ending(struct body *b, struct object o, const char *min, struct ask *q);
/* Reads src_lang, tgt_lang and forced_bos_token_id, as transformers' pipelines have them. */
void body_languages(struct body *b, struct object o, struct ask *q);
/* Reads vLLM's allowed_token_ids and truncate_prompt_tokens, where -1 means `max_input`. */
void body_tokens(struct body *b, struct object o, uint32_t max_input, struct ask *q);
/* Reads vLLM's logprob_token_ids: report the log-probabilities of these tokens. */
void body_logprob_ids(struct body *b, struct object o, struct ask *q);
/* A list of token ids; `v` is an array. NULL with *n 0: the body was failed. */
const uint32_t *body_ids(struct body *b, struct object o, const char *key, const cJSON *v,
                         uint32_t *n);

/* Finds the value of a dotted path in a valid JSON text, for u64 and for error columns. Sets its
 * offset and length in bytes; false if absent. */
bool body_locate(const char *text, size_t n, const char *path, const char *key, size_t *at,
                 size_t *len);
/* Reads `model` from an unparsed body: the first member of that name, if it is a string. In `a`;
 * NULL: none. */
const char *body_model(const char *p, size_t n, struct arena *a);
/* The same of another member that is a text. */
const char *body_text(const char *p, size_t n, const char *name, struct arena *a);
#endif
