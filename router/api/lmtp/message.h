/* message.h - parses one LMTP message. Pure.
 *
 * `TYPE {json}`: a word, a space, one object. All limits of fields are checked here, except those
 * that depend on the model (vocabulary, length). docs/lmtp.md is the reference for client
 * authors. */
#ifndef ROUTER_API_LMTP_MESSAGE_H
#define ROUTER_API_LMTP_MESSAGE_H
#include "common/arena.h"
#include "common/err.h"
#include "common/rpc/trace.h"
#include "router/request/ask.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LMTP_ID_MAX = 64, LMTP_NAME_MAX = 64, LMTP_DEFAULT_TOKENS = 32 };
/* Arena size in bytes for a message of n bytes: see lmtp_parse(). */
#define LMTP_ARENA(n) ((64u << 10) + 16 * (size_t)(n))

/* A stream id in the client's JSON, a number or string: compared and echoed literally. Empty:
 * absent or invalid. */
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
    struct lmtp_id target;  /* CANCEL: the stream to cancel */
    const char *model;      /* NULL: absent */
    const uint32_t *prompt; /* NULL: absent */
    const uint32_t *scored; /* SCORE */
    uint32_t n_prompt, n_scored;
    /* the same as untokenized text; NULL: absent */
    const char *text, *scored_text;
    size_t n_text, n_scored_text;
    bool return_text; /* items include their text */
    /* names of token buffers: prefix of the prompt; where prompt and answer are stored; to
     * delete */
    const char *buffer, *save, *drop;
    uint32_t buffer_length;               /* leading tokens of the buffer to use; UINT32_MAX: all */
    uint32_t timeout_ms;                  /* 0: none */
    int64_t deadline_ms;                  /* derived from timeout_ms by the caller; not parsed */
    bool status;                          /* send MSG items with the queue position */
    struct trace_context trace;           /* `traceparent`; zero: absent or invalid */
    char tracestate[TRACE_STATE_MAX + 1]; /* empty: none */
    /* the stream outlives its connection and can be resumed by this name */
    const char *session;
    uint32_t from; /* RESUME: index of the first item to send */
    uint32_t max_tokens, top_logprobs;
#define PARAM(kind, type, name, ...) PARAM_OPT_##type name;
#include "common/params.def"
    struct opt_u64 seed;
    const uint32_t *bias_ids; /* in the order received */
    const float *bias;
    uint32_t n_bias;
    struct err err; /* ERR_NONE, or why the message is refused */
};

/* Parses a message. Arrays and strings go into `a`: at most 8 bytes per message byte, plus 4 kB. */
void lmtp_parse(const char *p, size_t n, struct arena *a, struct lmtp_message *m);
#endif
