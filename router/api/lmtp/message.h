/* message.h - one LMTP message as the client meant it. Pure.
 *
 * `TYPE {json}`: the word before the first space, then one object. What each field may be is said
 * here once; what only the model can judge (vocabulary, length) is not looked at. docs/lmtp.md is
 * the page for those who write clients. */
#ifndef ROUTER_API_LMTP_MESSAGE_H
#define ROUTER_API_LMTP_MESSAGE_H
#include "common/arena.h"
#include "common/err.h"
#include "common/trace.h"
#include "router/request/ask.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LMTP_ID_MAX = 64, LMTP_NAME_MAX = 64, LMTP_DEFAULT_TOKENS = 32 };
/* What the arena of a message of n bytes may take: see lmtp_parse(). */
#define LMTP_ARENA(n) ((64u << 10) + 16 * (size_t)(n))

/* A stream's name as the client wrote it, a JSON number or string: compared and echoed as it is.
 * Empty: none, or one that is none. */
struct lmtp_id {
    char text[LMTP_ID_MAX];
};

enum lmtp_type {
    LMTP_MALFORMED,
    LMTP_UNKNOWN,
    LMTP_GENERATE,
    LMTP_SCORE,
    LMTP_INFO,
    LMTP_CANCEL,
    LMTP_BUFFER,
    LMTP_RESUME
};

struct lmtp_message {
    enum lmtp_type type;
    struct lmtp_id id;
    struct lmtp_id victim;  /* CANCEL */
    const char *model;      /* NULL: not said */
    const uint32_t *prompt; /* NULL: not said */
    const uint32_t *scored; /* SCORE */
    uint32_t n_prompt, n_scored;
    /* the same as text, which is not tokens yet; NULL: not said */
    const char *text, *scored_text;
    size_t n_text, n_scored_text;
    bool return_text; /* items carry their text */
    /* token buffers, by name: the prompt begins with one; the end is kept as one; forget one */
    const char *buffer, *save, *drop;
    uint32_t buffer_length;               /* how many of the buffer's tokens; UINT32_MAX: all */
    uint32_t timeout_ms;                  /* 0: none */
    int64_t deadline_ms;                  /* of that, for who sets it; not read from the message */
    bool status;                          /* MSG about its place in the queue */
    struct trace_context trace;           /* `traceparent`; zero: none, or none that can be read */
    char tracestate[TRACE_STATE_MAX + 1]; /* beside it; empty: none */
    const char *session;                  /* the stream outlives its connection under this name */
    uint32_t from;                        /* RESUME: the first item that is wanted */
    uint32_t max_tokens, top_logprobs;
#define PARAM(kind, type, name, ...) PARAM_OPT_##type name;
#include "common/params.def"
    struct opt_u64 seed;
    const uint32_t *bias_ids; /* as they came */
    const float *bias;
    uint32_t n_bias;
    struct err err; /* ERR_NONE, or why this cannot be done */
};

/* Arrays and strings go into `a`, at most 8 bytes for each of the message and 4 kB. */
void lmtp_parse(const char *p, size_t n, struct arena *a, struct lmtp_message *m);
#endif
