/* access.h - the access log: one line per request, whatever its outcome.
 *
 * The line of an HTTP request or LMTP stream is written when it is over. The message is one of
 *
 *   Success    answered to the end
 *   Failed     refused or failed; `error` gives the reason
 *   Dropped    the client disconnected first: status 499, unless a stream with 200 had begun
 *
 * The level is INFO; ERROR for internal errors; DEBUG for probes and scrapes. Times are in seconds,
 * as in TGI's line; fields that do not apply are omitted. Prompts, answers and keys are never
 * logged. docs/logs.md lists the fields for operators. */
#ifndef ROUTER_HTTP_ACCESS_H
#define ROUTER_HTTP_ACCESS_H
#include "router/request/request.h"

enum access_end { ACCESS_SUCCESS, ACCESS_FAILED, ACCESS_DROPPED };

/* The work of one generation, or of several of one request. Times are in ns; 0: unknown. */
struct access_work {
    uint32_t n; /* generations; 0: the other fields do not apply */
    uint64_t input_tokens, cached_tokens, generated_tokens;
    int64_t validation, queue, first_token, inference, per_token;
    const char *finish; /* of the first one; NULL: it did not finish */
    const char *seed;   /* NULL: not sampled, or several generations */
    /* of the first one: why its cached prefix ends, and its first token that was not cached; NULL:
     * nothing more could have been cached */
    const char *cache_miss;
    uint32_t cache_miss_token;
};

struct access {
    enum access_end end;
    bool ours;  /* the failure is an internal error */
    bool quiet; /* a probe or a scrape */
    int status; /* HTTP status; 0: the protocol has none */
    const char *id, *method, *path, *model;
    const char *key, *user; /* name of the key; end user named by the client; NULL, "": none */
    const char *error;      /* ACCESS_FAILED */
    int64_t total;          /* ns from arrival to the end */
    struct access_work work;
};

/* Adds a generation to `w`. `end` is NULL if it did not end normally; `generated`: tokens passed on
 * for the client. The scheduler must have released `r`. */
void access_add(struct access_work *w, const struct gen_request *r, uint32_t generated,
                const enum gen_finish *end);
void access_log(const struct access *a); /* any thread */
#endif
