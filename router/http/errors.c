#include "router/http/errors.h"
#include <string.h>

int error_status(enum error_shape s, enum err_kind k)
{
    int status = err_status(k);
    if (s == ERRORS_TEI)
        return k == ERR_VALIDATION || k == ERR_TOO_LONG ? 413 : status;
    if (s == ERRORS_TGI)
        return status;
    if (k == ERR_OVERLOADED) /* 429 says that the key had its share */
        return 503;
    return status == 422 ? 400 : status == 424 ? 500 : status;
}

/* Error types in the documentation of the SDKs, by status. */
struct error_words {
    int status;
    const char *openai, *code, *anthropic, *google;
};
static const struct error_words *words_of(int status)
{
    static const struct error_words rows[] = {
        {400, "invalid_request_error", NULL, "invalid_request_error", "INVALID_ARGUMENT"},
        {401, "invalid_request_error", "invalid_api_key", "authentication_error",
         "UNAUTHENTICATED"},
        {404, "invalid_request_error", "not_found", "not_found_error", "NOT_FOUND"},
        {405, "invalid_request_error", "method_not_allowed", "invalid_request_error",
         "UNIMPLEMENTED"},
        {413, "invalid_request_error", "request_too_large", "request_too_large",
         "INVALID_ARGUMENT"},
        {415, "invalid_request_error", "unsupported_media_type", "invalid_request_error",
         "INVALID_ARGUMENT"},
        {426, "invalid_request_error", "upgrade_required", "invalid_request_error",
         "INVALID_ARGUMENT"},
        {429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED"},
        {503, "server_error", "unavailable", "overloaded_error", "UNAVAILABLE"},
        {500, "server_error", NULL, "api_error", "INTERNAL"},
    };
    size_t i = 0, last = sizeof(rows) / sizeof(rows[0]) - 1;
    while (i < last && rows[i].status != status)
        i++;
    return &rows[i];
}

/* Messages of these kinds quote the parameter's name first, if they are about one. */
static bool quotes_param(enum err_kind k)
{
    return k == ERR_VALIDATION || k == ERR_TOO_LONG || k == ERR_NO_PREVIOUS;
}

void error_param(const struct err *e, char *out, size_t n)
{
    const char *from = *e->param ? e->param : NULL, *end = from ? from + strlen(from) : NULL;
    *out = 0;
    if (!from && quotes_param(e->kind) && (from = strchr(e->msg, '`')))
        end = strchr(++from, '`');
    const size_t len = from && end ? (size_t)(end - from) : 0;
    if (len == 0 || len >= n)
        return;
    memcpy(out, from, len);
    out[len] = 0;
}

static void string(struct buf *out, const char *s)
{
    if (s && *s)
        buf_json_str(out, s, strlen(s));
    else
        buf_str(out, "null");
}

/* OpenAI's code of an error; NULL: none. */
static const char *code_of(const struct err *e, int status)
{
    static const char *const codes[] = {[ERR_IMAGE] = "invalid_image_format",
                                        [ERR_IMAGE_URL] = "invalid_image_url",
                                        [ERR_TOO_LONG] = "context_length_exceeded",
                                        [ERR_NO_MODEL] = "model_not_found",
                                        [ERR_NO_PREVIOUS] = "previous_response_not_found"};
    const char *code = (size_t)e->kind < sizeof(codes) / sizeof(codes[0]) ? codes[e->kind] : NULL;
    return code ? code : words_of(status)->code;
}

static void openai_object(struct buf *out, const char *msg, int status, const char *param,
                          const char *code)
{
    buf_str(out, "{\"message\":");
    buf_json_str(out, msg, strlen(msg));
    buf_fmt(out, ",\"type\":\"%s\",\"param\":", words_of(status)->openai);
    string(out, param);
    buf_str(out, ",\"code\":");
    string(out, code);
}

static void whole_object(struct buf *out, const struct err *e, bool event)
{
    int status = error_status(ERRORS_OPENAI, e->kind);
    char param[sizeof(e->param)];
    error_param(e, param, sizeof(param));
    openai_object(out, e->msg, status, param, code_of(e, status));
    if (event) /* TGI's clients read it there */
        buf_fmt(out, ",\"http_status_code\":%d", status);
    buf_ch(out, '}');
}

void error_object(struct buf *out, const struct err *e) { whole_object(out, e, true); }

/* Begins OpenAI's body. As a message it says what it is, and the status that HTTP would have. */
static void openai_begin(struct buf *out, enum error_shape s, int status)
{
    buf_ch(out, '{');
    if (s == ERRORS_OPENAI_MESSAGE)
        buf_fmt(out, "\"type\":\"error\",\"status\":%d,", status);
    buf_str(out, "\"error\":");
}

static bool is_openai(enum error_shape s)
{
    return s == ERRORS_OPENAI || s == ERRORS_OPENAI_MESSAGE;
}

static void openai_body(struct buf *out, enum error_shape s, const struct err *e, bool event)
{
    openai_begin(out, s, error_status(s, e->kind));
    whole_object(out, e, event);
    if (*err_wire(e->kind))
        buf_fmt(out, ",\"error_type\":\"%s\"", err_wire(e->kind));
    buf_ch(out, '}');
}

static void tgi_body(struct buf *out, const struct err *e)
{
    buf_str(out, "{\"error\":");
    buf_json_str(out, e->msg, strlen(e->msg));
    buf_fmt(out, ",\"error_type\":\"%s\"}", err_wire(e->kind));
}

/* Of an error, or of a refusal, which has no `e`. */
struct about {
    const struct err *e;
    const char *msg, *id; /* id: the request's */
    int status;
    uint32_t wait_s; /* when to try again; 0: not said */
};

/* {"error": text}, Ollama's. */
static void ollama_body(struct buf *out, const struct about *a)
{
    buf_str(out, "{\"error\":");
    buf_json_str(out, a->msg, strlen(a->msg));
    buf_ch(out, '}');
}

static void cohere_body(struct buf *out, const struct about *a)
{
    buf_str(out, "{\"id\":");
    string(out, a->id);
    buf_str(out, ",\"message\":");
    buf_json_str(out, a->msg, strlen(a->msg));
    buf_ch(out, '}');
}

/* Anthropic's details of an error, as a member; "": none. Its SDKs start threads unasked, and go on
 * without one where the error has these. */
static const char *details_of(const struct err *e)
{
    return e && e->kind == ERR_NO_THREADS
               ? ",\"details\":{\"error_code\":\"thread_unsupported_request\","
                 "\"unsupported\":[\"thread\"]}"
               : "";
}

static void anthropic_body(struct buf *out, const struct about *a)
{
    buf_fmt(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
            words_of(a->status)->anthropic);
    buf_json_str(out, a->msg, strlen(a->msg));
    buf_str(out, details_of(a->e));
    buf_str(out, "},\"request_id\":");
    string(out, a->id);
    buf_ch(out, '}');
}

/* Google's clients read the time to wait here, not in a header. */
static void google_body(struct buf *out, const struct about *a)
{
    buf_fmt(out, "{\"error\":{\"code\":%d,\"message\":", a->status);
    buf_json_str(out, a->msg, strlen(a->msg));
    buf_fmt(out, ",\"status\":\"%s\"", words_of(a->status)->google);
    if (a->wait_s)
        buf_fmt(out,
                ",\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\","
                "\"retryDelay\":\"%us\"}]",
                a->wait_s);
    buf_str(out, "}}");
}

typedef void (*plain_body)(struct buf *out, const struct about *a);
static plain_body plain_body_of(enum error_shape s)
{
    static const plain_body rows[] = {[ERRORS_ANTHROPIC] = anthropic_body,
                                      [ERRORS_OLLAMA] = ollama_body,
                                      [ERRORS_COHERE] = cohere_body,
                                      [ERRORS_GOOGLE] = google_body};
    return (size_t)s < sizeof(rows) / sizeof(rows[0]) ? rows[s] : NULL;
}

const char *error_body(struct buf *out, enum error_shape s, const struct err *e, const char *id,
                       uint32_t wait_s)
{
    const struct about a = {e, e->msg, id, error_status(s, e->kind), wait_s};
    const plain_body plain = plain_body_of(s);
    if (is_openai(s)) {
        openai_body(out, s, e, false);
    } else if (plain) {
        plain(out, &a);
    } else if (*err_wire(e->kind)) {
        tgi_body(out, e);
    } else {
        buf_str(out, e->msg);
        return "text/plain; charset=utf-8";
    }
    return "application/json";
}

void error_event(struct buf *out, enum error_shape s, const struct err *e, const char *id)
{
    const plain_body plain = plain_body_of(s);
    const struct about a = {e, e->msg, id, error_status(s, e->kind), 0};
    if (s == ERRORS_OLLAMA) { /* a line */
        plain(out, &a);
        buf_ch(out, '\n');
        return;
    }
    if (s == ERRORS_COHERE) { /* the last event of the answer */
        buf_str(out, "event: message-end\ndata: {\"type\":\"message-end\",\"delta\":{"
                     "\"finish_reason\":\"ERROR\",\"error\":");
        buf_json_str(out, e->msg, strlen(e->msg));
        buf_str(out, "}}\n\n");
        return;
    }
    buf_str(out, s == ERRORS_ANTHROPIC ? "event: error\ndata: " : "data: ");
    if (is_openai(s))
        openai_body(out, s, e, true);
    else if (plain)
        plain(out, &a);
    else
        tgi_body(out, e);
    buf_str(out, "\n\n");
}

const char *error_refusal_text(int status)
{
    switch (status) {
    case 401:
        return "The API key is missing or wrong: send it as `Authorization: Bearer KEY`.";
    case 404:
        return "There is no such path.";
    case 405:
        return "The path does not take this method; the header Allow names those it takes.";
    default:
        return "Bad request";
    }
}

void error_refusal(struct buf *out, enum error_shape s, int status, const char *text,
                   const char *id)
{
    const char *msg = text ? text : error_refusal_text(status);
    const plain_body plain = plain_body_of(s);
    const struct about a = {NULL, msg, id, status, 0};
    if (plain) {
        plain(out, &a);
    } else if (s == ERRORS_TEI) {
        buf_str(out, "{\"error\":");
        buf_json_str(out, msg, strlen(msg));
        buf_str(out, ",\"error_type\":\"validation\"}");
    } else if (is_openai(s)) {
        openai_begin(out, s, status);
        openai_object(out, msg, status, NULL, words_of(status)->code);
        buf_str(out, "}}");
    }
}

bool error_is_ours(const struct err *e)
{
    return err_status(e->kind) >= 500 || e->kind == ERR_GENERATION;
}
