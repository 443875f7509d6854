/* errors.h - one error, in the words of the protocol whose route it is.
 *
 *   TGI        {"error": text, "error_type": word}; plain text for bodies that cannot be read
 *   OpenAI     {"error": {"message", "type", "param", "code"}, "error_type": word}
 *   TEI        as TGI's; its statuses are text-embeddings-inference's
 *   Anthropic  {"type": "error", "error": {"type", "message"}, "request_id"}
 *
 * TGI's statuses (422, 424) are its own; the others' clients choose their exception by theirs. */
#ifndef ROUTER_HTTP_ERRORS_H
#define ROUTER_HTTP_ERRORS_H
#include "common/buf.h"
#include "common/err.h"

enum error_shape { ERRORS_TGI, ERRORS_OPENAI, ERRORS_ANTHROPIC, ERRORS_TEI };

int error_status(enum error_shape s, enum err_kind k);
/* Append the body of `e`; `id` is the request's. Returns its content type. */
const char *error_body(struct buf *out, enum error_shape s, const struct err *e, const char *id);
/* Why a request was refused before any route, in words. */
const char *error_refusal_text(int status);
/* Append what a refusal before any route says: a key, a path, a length. Nothing for TGI's routes,
 * which have a plain `text` or none (NULL). */
void error_refusal(struct buf *out, enum error_shape s, int status, const char *text,
                   const char *id);
/* Append `e` as an event of a stream that has begun. */
void error_event(struct buf *out, enum error_shape s, const struct err *e, const char *id);
/* OpenAI's object alone: {"message", "type", "param", "code", "http_status_code"}. */
void error_object(struct buf *out, const struct err *e);
/* The parameter that a message of ours is about ("" if none): what it names in backticks, or the
 * path that a body error begins with. */
void error_param(const struct err *e, char *out, size_t n);
#endif
