/* err.h - the error value: set where the error is detected, wrapped by callers.
 *
 * Rule: a function that can fail returns int (0 ok, -1 failed) or a pointer (NULL failed) and takes
 * a `struct err *` last. The function that detects the error calls err_set(). Each caller that can
 * add context calls err_wrap(). Code in between does not log; only the edge (HTTP, gRPC, main)
 * prints. */
#ifndef COMMON_ERR_H
#define COMMON_ERR_H

/* Kind, HTTP status, `error_type` on the wire: the only place that maps them (statuses and words of
 * TGI's HTTP API). An empty word: the body is the plain message. */
#define ERR_KINDS(X)                                                                               \
    X(ERR_NONE, 200, "")                                                                           \
    X(ERR_VALIDATION, 422, "validation")                                                           \
    X(ERR_OVERLOADED, 429, "overloaded")                                                           \
    X(ERR_GENERATION, 424, "generation")                                                           \
    X(ERR_INCOMPLETE, 500, "incomplete_generation")                                                \
    X(ERR_INCOMPLETE_STREAM, 500, "incomplete_generation_stream")                                  \
    X(ERR_TEMPLATE, 422, "template_error")                                                         \
    X(ERR_TOOL, 422, "tool_error")                                                                 \
    X(ERR_UNHEALTHY, 503, "healthcheck")                                                           \
    X(ERR_SYSTEM, 500, "system")                                                                   \
    X(ERR_TASK, 400, "unsupported")                                                                \
    X(ERR_EMPTY, 400, "empty")                                                                     \
    X(ERR_SYNTAX, 400, "")                                                                         \
    X(ERR_SHAPE, 422, "")                                                                          \
    X(ERR_SUFFIX, 422, "suffix not supported")                                                     \
    X(ERR_BATCH_SIZE, 422, "batch size exceeded")                                                  \
    X(ERR_NOT_FOUND, 404, "not_found")                                                             \
    X(ERR_IMAGE, 422, "validation")                                                                \
    X(ERR_IMAGE_URL, 422, "validation")                                                            \
    X(ERR_KEY_LIMIT, 429, "overloaded")                                                            \
    X(ERR_TOO_LONG, 422, "validation")                                                             \
    X(ERR_NO_MODEL, 404, "not_found")                                                              \
    X(ERR_NO_PREVIOUS, 422, "validation")                                                          \
    X(ERR_NO_THREADS, 422, "")                                                                     \
    X(ERR_TOO_LARGE, 413, "")

enum err_kind {
#define X(kind, status, wire) kind,
    ERR_KINDS(X)
#undef X
};

struct err {
    enum err_kind kind;
    int sys; /* errno, or 0 if not applicable */
    /* "outer: inner: cause", NUL-terminated, truncated if too long. One line of UTF-8: control
     * characters become blanks, invalid bytes question marks. */
    char msg[480];
    char param[96]; /* the path of the request's field at fault, where it is known; else "" */
};
#define ERR_INIT                                                                                   \
    {                                                                                              \
        ERR_NONE, 0, "", ""                                                                        \
    }

/* All functions return -1, so that a failing function can `return err_set(...)`. */
int err_set(struct err *e, enum err_kind k, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int err_sys(struct err *e, const char *fmt, ...) /* ERR_SYSTEM; appends strerror(errno) */
    __attribute__((format(printf, 2, 3)));
int err_wrap(struct err *e, const char *fmt, ...) /* prepends "context: ", keeps the kind */
    __attribute__((format(printf, 2, 3)));
/* Sets e->param, after err_set(), which empties it. */
void err_param(struct err *e, const char *path);
int err_nomem(struct err *e); /* ERR_SYSTEM, ENOMEM, "out of memory" */

/* The static analyzer sees one file at a time: this shows it that err.c's functions return -1. */
#ifdef __clang_analyzer__
#define err_set(...)  ((err_set)(__VA_ARGS__), -1)
#define err_sys(...)  ((err_sys)(__VA_ARGS__), -1)
#define err_wrap(...) ((err_wrap)(__VA_ARGS__), -1)
#define err_nomem(e)  ((err_nomem)(e), -1)
#endif

int err_status(enum err_kind k);       /* HTTP status */
const char *err_wire(enum err_kind k); /* `error_type` */
#endif
