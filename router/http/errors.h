/* errors.h - renders an error in the format of the route's protocol.
 *
 *   TGI        {"error": text, "error_type": word}; plain text for bodies that cannot be read
 *   OpenAI     {"error": {"message", "type", "param", "code"}, "error_type": word}
 *   event      OpenAI's as a message of a WebSocket: {"type": "error", "status": 400, "error", ...}
 *   TEI        as TGI's; its statuses are text-embeddings-inference's
 *   Ollama     {"error": text}
 *   Cohere     {"id", "message"}
 *   Anthropic  {"type": "error", "error": {"type", "message"}, "request_id"}
 *   Google     {"error": {"code", "message", "status", "details"}}
 *
 * TGI uses its own statuses (422, 424); clients of the others select their exception by status. */
#ifndef ROUTER_HTTP_ERRORS_H
#define ROUTER_HTTP_ERRORS_H
#include "common/buf.h"
#include "common/err.h"
#include <stdint.h>

enum error_shape {
    ERRORS_TGI,
    ERRORS_OPENAI,
    ERRORS_OPENAI_MESSAGE,
    ERRORS_ANTHROPIC,
    ERRORS_TEI,
    ERRORS_OLLAMA,
    ERRORS_COHERE,
    ERRORS_GOOGLE
};

/* The HTTP status of an error, which differs between the protocols. */
int error_status(enum error_shape s, enum err_kind k);
/* Appends the body for `e`; `id` is the request's. `wait_s`: when to try again, in s, for the
 * protocols whose errors say so; 0: not said. Returns its content type. */
const char *error_body(struct buf *out, enum error_shape s, const struct err *e, const char *id,
                       uint32_t wait_s);
/* The reason phrase for a request refused before any route. */
const char *error_refusal_text(int status);
/* Appends the body of a refusal before any route, such as a missing key, an unknown path or a long
 * body. For TGI's routes that is the plain `text`, or nothing if it is NULL. */
void error_refusal(struct buf *out, enum error_shape s, int status, const char *text,
                   const char *id);
/* Appends `e` as an event of a stream that has begun. */
void error_event(struct buf *out, enum error_shape s, const struct err *e, const char *id);
/* Appends OpenAI's object alone: {"message", "type", "param", "code", "http_status_code"}. */
void error_object(struct buf *out, const struct err *e);
/* The parameter at fault: e->param, else the name in backticks in the message of a validator. "" if
 * none. */
void error_param(const struct err *e, char *out, size_t n);
/* True for an internal error; false if the request, or what the client asks of it, is at fault. */
bool error_is_ours(const struct err *e);
#endif
