/* access.h - the access log: one line for every request, whatever became of it.
 *
 * HTTP requests are written when they are over (served, refused, failed, or left by the client),
 * LMTP's streams likewise. The message is one of
 *
 *   Success    answered to the end
 *   Failed     refused or failed; `error` says why
 *   Dropped    the client left first: status 499, unless a stream with 200 had begun
 *
 * and the level INFO; ERROR where the fault is ours; DEBUG for probes and scrapes. Times are in
 * seconds, as in TGI's line; fields that do not apply are left out. Prompts, answers and keys are
 * never written. docs/logs.md is the list of fields for operators. */
#ifndef ROUTER_HTTP_ACCESS_H
#define ROUTER_HTTP_ACCESS_H
#include "router/request/request.h"

enum access_end { ACCESS_SUCCESS, ACCESS_FAILED, ACCESS_DROPPED };

/* What a generation, or several of one request, took. Times are ns; 0: not known. */
struct access_work {
    uint32_t n; /* generations; 0: none of the following applies */
    uint64_t input_tokens, cached_tokens, generated_tokens;
    int64_t validation, queue, first_token, inference, per_token;
    const char *finish; /* of the first one; NULL: it did not end */
    const char *seed;   /* NULL: not sampled, or several */
};

struct access {
    enum access_end end;
    bool ours;  /* the fault, when it failed */
    bool quiet; /* a probe or a scrape */
    int status; /* 0: the protocol has none */
    const char *id, *method, *path, *model;
    const char *key, *user; /* name of the key, who the client says it asks for; NULL, "": none */
    const char *error;      /* ACCESS_FAILED */
    int64_t total;          /* ns from arrival to the end */
    struct access_work work;
};

/* Adds a generation to `w`. `end` is NULL when it did not end normally; `generated` is what reached
 * the client's side. Not while the scheduler still holds `r`. */
void access_add(struct access_work *w, const struct gen_request *r, uint32_t generated,
                const enum gen_finish *end);
void access_log(const struct access *a); /* any thread */
#endif
