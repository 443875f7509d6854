/* defaults.h - sampling parameters of the server, for requests that do not set them.
 *
 * Publishers of models recommend a temperature, `top_p` and the like in generation_config.json. As
 * in vLLM they apply to every protocol but TGI's and LMTP, which define values of their own. */
#ifndef ROUTER_GENERATE_DEFAULTS_H
#define ROUTER_GENERATE_DEFAULTS_H
#include "common/buf.h"
#include "common/err.h"
#include "router/request/ask.h"
#include "router/request/request.h"

struct sampling_defaults {
#define PARAM(kind, type, name, ...) PARAM_OPT_##type name;
#include "common/params.def"
    struct opt_u64 max_new_tokens; /* a limit: longer answers are clipped to it */
    /* Of models with an encoder: the token with which every answer begins, of all protocols, after
     * decoder_start_token_id. mBART and NLLB have one for each language. */
    struct opt_u64 forced_bos_token_id;
    struct opt_u64 min_new_tokens; /* clipped to the length that a request asks for */
    struct bad_words never;        /* owned: suppress_tokens and bad_words_ids */
    /* Names of members that change answers in transformers and have no effect here; "": none. */
    char ignored[256];
};

/* Reads generation_config.json and then the members of `override`, a JSON object (NULL or "":
 * none), which replace its members. `source`: "auto", the file of the model in `dir`, if there is
 * one; "vllm" or "none", no file; otherwise the folder of the file. Members that are no sampling
 * parameters are skipped in the file and refused in `override`, as values out of range are in both:
 * ERR_VALIDATION. Models without that file have their forced_bos_token_id in config.json. The
 * result is freed by defaults_free(), also after an error. */
int defaults_load(struct sampling_defaults *out, const char *dir, const char *source,
                  const char *override, struct err *e);
void defaults_free(struct sampling_defaults *d);
/* Sets what the request has left open, and limits its length. */
void defaults_apply(const struct sampling_defaults *d, struct ask *q);
/* Appends the parameters that are set as members of a JSON object, without its braces. */
void defaults_print(const struct sampling_defaults *d, struct buf *out);
#endif
