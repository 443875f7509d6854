#include "router/api/lmtp/message.h"
#include "common/json/reader.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The first error is reported. The text is still parsed to its end, to know whether it is JSON. */
static void complain(struct lmtp_message *m, const char *field, const char *what)
{
    if (m->err.kind == ERR_NONE)
        err_set(&m->err, ERR_VALIDATION, "`%s` %s", field, what);
}

struct message_reader {
    struct json_reader s;
    struct arena *arena;
    struct lmtp_message *m;
};

/* ---------------------------------------------------------------- values */

static bool is_null(struct message_reader *r)
{
    return jr_next(&r->s) == JR_NULL && jr_skip(&r->s, NULL, NULL);
}

/* Reads a number; false: not one, and the value was skipped. */
static bool number(struct message_reader *r, struct jr_number *out)
{
    *out = (struct jr_number){0};
    if (jr_next(&r->s) == JR_NUMBER)
        return jr_number(&r->s, out);
    jr_skip(&r->s, NULL, NULL);
    return false;
}

static void read_id(struct message_reader *r, struct lmtp_id *id)
{
    const char *text = r->s.p;
    struct jr_number v;
    size_t n = 0;
    bool ok = false;
    *id = (struct lmtp_id){0};
    if (jr_next(&r->s) == JR_STRING) {
        ok = jr_raw_string(&r->s, &text, &n);
    } else {
        text = r->s.p;
        ok = number(r, &v) && v.whole;
        n = ok ? (size_t)(r->s.p - text) : 0;
    }
    if (ok && n < sizeof(id->text))
        memcpy(id->text, text, n);
}

/* An upper bound for the members of the array or object that begins here: commas plus one. */
static size_t count_members(const struct json_reader *s, char close)
{
    size_t n = 1;
    for (const char *p = s->p; p < s->end && *p != close; p++)
        n += *p == ',';
    return n;
}

static const uint32_t *read_ids(struct message_reader *r, const char *field, uint32_t *n)
{
    struct jr_number v;
    *n = 0;
    if (jr_next(&r->s) != JR_ARRAY) {
        complain(r->m, field, "must be a list of token ids");
        jr_skip(&r->s, NULL, NULL);
        return NULL;
    }
    uint32_t *out = ARENA_NEW(r->arena, uint32_t, count_members(&r->s, ']'));
    if (!out)
        complain(r->m, field, "is too long");
    jr_open(&r->s, '[');
    for (bool first = true; jr_more(&r->s, ']', &first);) {
        if (!number(r, &v) || !v.whole || v.i < 0 || v.i > UINT32_MAX)
            complain(r->m, field, "must be a list of token ids");
        else if (out && r->m->err.kind == ERR_NONE)
            out[(*n)++] = (uint32_t)v.i;
    }
    return out;
}

static bool bias_key(const char *p, size_t n, uint32_t *id)
{
    uint64_t v = 0;
    if (n == 0 || n > 10)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(p[i] - '0');
    }
    *id = (uint32_t)v;
    return v <= UINT32_MAX;
}

/* Reads at most 9 digits; NULL: none, or more. */
static const char *short_number(const char *p, const char *end, uint32_t *v)
{
    const char *begin = p;
    for (*v = 0; p < end && *p >= '0' && *p <= '9' && p - begin < 10; p++)
        *v = *v * 10 + (uint32_t)(*p - '0');
    return p == begin || p - begin > 9 ? NULL : p;
}

/* Fast path for the usual member, "id": a short integer. False: use the general parser. A mask of
 * half a vocabulary has sixty thousand of them, which must take less time than a token. */
static bool plain_bias(struct json_reader *s, uint32_t *id, float *bias)
{
    const char *p = s->p, *end = s->end;
    uint32_t v;
    if (p == end || *p != '"' || !(p = short_number(p + 1, end, id)) || end - p < 4 ||
        p[0] != '"' || p[1] != ':')
        return false;
    p += 2;
    p += *p == ' ';
    bool minus = *p == '-';
    const char *begin = p + minus;
    p = short_number(begin, end, &v);
    if (!p || p == end || (*p != ',' && *p != '}') || (*begin == '0' && p - begin > 1))
        return false;
    *bias = minus && v ? -(float)v : (float)v;
    s->p = p;
    return true;
}

static void read_bias(struct message_reader *r)
{
    enum { LEAST = 6 }; /* shortest member with separator: "1":0, */
    struct lmtp_message *m = r->m;
    struct jr_number v;
    const char *key = NULL;
    size_t n = 0;
    m->n_bias = 0;
    if (is_null(r))
        return;
    if (jr_next(&r->s) != JR_OBJECT) {
        complain(m, "logit_bias", "must be an object of token ids and numbers");
        jr_skip(&r->s, NULL, NULL);
        return;
    }
    const char *close = memchr(r->s.p, '}', (size_t)(r->s.end - r->s.p));
    size_t most = (size_t)((close ? close : r->s.end) - r->s.p) / LEAST + 1;
    uint32_t *ids = ARENA_NEW(r->arena, uint32_t, most);
    float *bias = ARENA_NEW(r->arena, float, most);
    if (!ids || !bias)
        complain(m, "logit_bias", "is too long");
    jr_open(&r->s, '{');
    for (bool first = true; jr_more(&r->s, '}', &first);) {
        uint32_t id = 0;
        float plain = 0;
        if (ids && bias && m->err.kind == ERR_NONE && plain_bias(&r->s, &id, &plain)) {
            ids[m->n_bias] = id;
            bias[m->n_bias++] = plain;
            continue;
        }
        if (!jr_name(&r->s, &key, &n))
            break;
        if (!bias_key(key, n, &id))
            complain(m, "logit_bias", "has a key that is no token id");
        bool fine = number(r, &v) && fabs(v.v) <= FLT_MAX;
        if (!fine)
            complain(m, "logit_bias", "has a value that is no number");
        if (!fine || m->err.kind != ERR_NONE)
            continue;
        ids[m->n_bias] = id;
        bias[m->n_bias++] = (float)v.v;
    }
    m->bias_ids = ids;
    m->bias = bias;
}

static void read_real(struct message_reader *r, const char *field, double min, double max,
                      struct opt_f32 *out)
{
    struct jr_number v;
    *out = (struct opt_f32){0};
    if (is_null(r))
        return;
    if (!number(r, &v))
        complain(r->m, field, "must be a number");
    else if (!(v.v >= min && v.v <= max))
        complain(r->m, field, "is out of range");
    else
        *out = (struct opt_f32){true, (float)v.v};
}

static int64_t read_int(struct message_reader *r, const char *field, int64_t min, int64_t max,
                        int64_t def)
{
    struct jr_number v;
    if (!number(r, &v) || !v.whole)
        complain(r->m, field, "must be an integer");
    else if (v.i < min || v.i > max)
        complain(r->m, field, "is out of range");
    else
        return v.i;
    return def;
}

/* NULL: absent, or null. */
static const char *read_string(struct message_reader *r, const char *field, size_t *n)
{
    const char *out = NULL;
    *n = 0;
    if (is_null(r))
        return NULL;
    if (jr_next(&r->s) != JR_STRING) {
        complain(r->m, field, "must be a string");
        jr_skip(&r->s, NULL, NULL);
    } else if (!jr_arena_string(&r->s, r->arena, &out, n)) {
        complain(r->m, field, "must be a string without NUL");
        out = NULL;
    }
    return out;
}

static const char *read_name(struct message_reader *r, const char *field)
{
    size_t n = 0;
    const char *name = read_string(r, field, &n);
    if (name && (n == 0 || n > LMTP_NAME_MAX))
        complain(r->m, field, "must have 1 to 64 bytes");
    return name;
}

static bool read_flag(struct message_reader *r, const char *field)
{
    if (is_null(r))
        return false;
    bool is = jr_next(&r->s) == JR_BOOL && *r->s.p == 't';
    if (jr_next(&r->s) != JR_BOOL)
        complain(r->m, field, "must be true or false");
    jr_skip(&r->s, NULL, NULL);
    return is;
}

static uint32_t read_seconds(struct message_reader *r, const char *field)
{
    struct opt_f32 v;
    read_real(r, field, 0.001, 86400, &v);
    return v.set ? (uint32_t)(v.v * 1000) : 0;
}

/* {"stream_id": the stream to cancel} */
static void read_data(struct message_reader *r)
{
    const char *key = NULL;
    size_t n = 0;
    if (jr_next(&r->s) != JR_OBJECT || r->m->type != LMTP_CANCEL) {
        jr_skip(&r->s, NULL, NULL);
        return;
    }
    jr_open(&r->s, '{');
    for (bool first = true; jr_more(&r->s, '}', &first) && jr_name(&r->s, &key, &n);) {
        if (n == 9 && !memcmp(key, "stream_id", 9))
            read_id(r, &r->m->target);
        else
            jr_skip(&r->s, NULL, NULL);
    }
}

/* ---------------------------------------------------------------- fields */

static bool is(const char *key, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(key, name, n) == 0;
}

static void read_whole(struct message_reader *r, const char *field, int64_t min, int64_t max,
                       struct opt_i64 *out)
{
    *out = (struct opt_i64){!is_null(r), 0};
    if (out->set)
        out->v = read_int(r, field, min, max, 0);
}
#define READ_F32 read_real
#define READ_U32 read_whole
#define READ_I32 read_whole

/* Parameters of common/params.def. */
static bool param_field(struct message_reader *r, const char *key, size_t n)
{
#define PARAM(kind, type, name, member, neutral, low, high, taken, words, tgi, openai, lmtp, ...)  \
    {                                                                                              \
        static const char *const field = lmtp;                                                     \
        if (field && is(key, n, field)) {                                                          \
            READ_##type(r, field, low, high, &r->m->name);                                         \
            const PARAM_V_##type v = r->m->name.v;                                                 \
            if (!PARAM_CUTS_##kind && r->m->name.set && !(taken))                                  \
                complain(r->m, field, "is out of range");                                          \
            return true;                                                                           \
        }                                                                                          \
    }
#include "common/params.def"
    return false;
}

/* SCORE ignores these. */
static bool sampling_field(struct message_reader *r, const char *key, size_t n)
{
    struct lmtp_message *m = r->m;
    if (is(key, n, "temperature")) {
        read_real(r, "temperature", -FLT_MAX, FLT_MAX, &m->temperature);
        if (m->temperature.v <= 0)
            m->temperature = (struct opt_f32){0};
    } else if (is(key, n, "max_tokens")) {
        m->max_tokens = (uint32_t)read_int(r, "max_tokens", 1, INT32_MAX, 1);
    } else if (is(key, n, "top_logprobs")) {
        m->top_logprobs = (uint32_t)read_int(r, "top_logprobs", 1, INT32_MAX, 1);
    } else if (is(key, n, "seed")) {
        bool set = !is_null(r);
        m->seed = (struct opt_u64){set, set ? (uint64_t)read_int(r, "seed", 0, INT64_MAX, 0) : 0};
    } else if (is(key, n, "logit_bias")) {
        read_bias(r);
    } else {
        return param_field(r, key, n);
    }
    return true;
}

/* The tokens of a GENERATE, SCORE or BUFFER. */
static bool token_field(struct message_reader *r, const char *key, size_t n)
{
    struct lmtp_message *m = r->m;
    if (is(key, n, "prompt"))
        m->prompt = read_ids(r, "prompt", &m->n_prompt);
    else if (is(key, n, "text"))
        m->text = read_string(r, "text", &m->n_text);
    else if (is(key, n, "buffer"))
        m->buffer = read_name(r, "buffer");
    else if (is(key, n, "buffer_length"))
        m->buffer_length = (uint32_t)read_int(r, "buffer_length", 0, INT32_MAX, 0);
    else if (is(key, n, "save"))
        m->save = read_name(r, "save");
    else if (is(key, n, "drop") && m->type == LMTP_BUFFER)
        m->drop = read_name(r, "drop");
    else if (is(key, n, "scored") && m->type == LMTP_SCORE)
        m->scored = read_ids(r, "scored", &m->n_scored);
    else if (is(key, n, "scored_text") && m->type == LMTP_SCORE)
        m->scored_text = read_string(r, "scored_text", &m->n_scored_text);
    else
        return false;
    return true;
}

static void read_tracestate(struct message_reader *r)
{
    size_t n = 0;
    const char *state = read_string(r, "tracestate", &n);
    bool valid = trace_state_valid(state);
    memcpy(r->m->tracestate, valid ? state : "", valid ? n + 1 : 1);
}

/* Options of a GENERATE or SCORE. */
static bool stream_field(struct message_reader *r, const char *key, size_t n)
{
    struct lmtp_message *m = r->m;
    if (is(key, n, "return_text"))
        m->return_text = read_flag(r, "return_text");
    else if (is(key, n, "timeout"))
        m->timeout_ms = read_seconds(r, "timeout");
    else if (is(key, n, "status"))
        m->status = read_flag(r, "status");
    else if (is(key, n, "traceparent"))
        trace_parse(read_string(r, "traceparent", &(size_t){0}), &m->trace);
    else if (is(key, n, "tracestate"))
        read_tracestate(r);
    else
        return false;
    return true;
}

static void read_field(struct message_reader *r, const char *key, size_t n)
{
    struct lmtp_message *m = r->m;
    bool work = m->type == LMTP_GENERATE || m->type == LMTP_SCORE;
    if (is(key, n, "stream_id"))
        read_id(r, &m->id);
    else if (is(key, n, "model") && m->type != LMTP_UNKNOWN)
        m->model = read_string(r, "model", &(size_t){0});
    else if (is(key, n, "data"))
        read_data(r);
    else if (is(key, n, "session") && (work || m->type == LMTP_RESUME))
        m->session = read_name(r, "session");
    else if (is(key, n, "from") && m->type == LMTP_RESUME)
        m->from = (uint32_t)read_int(r, "from", 0, INT32_MAX, 0);
    else if (!((work || m->type == LMTP_BUFFER) && token_field(r, key, n)) &&
             !(work && stream_field(r, key, n)) &&
             !(m->type == LMTP_GENERATE && sampling_field(r, key, n)))
        jr_skip(&r->s, NULL, NULL);
}

/* ---------------------------------------------------------------- the message */

static enum lmtp_type type_of(const char *p, size_t n)
{
    static const struct {
        const char *name;
        enum lmtp_type type;
    } types[] = {{"GENERATE", LMTP_GENERATE}, {"SCORE", LMTP_SCORE},   {"MODEL_INFO", LMTP_INFO},
                 {"CANCEL", LMTP_CANCEL},     {"BUFFER", LMTP_BUFFER}, {"RESUME", LMTP_RESUME}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (is(p, n, types[i].name))
            return types[i].type;
    return n ? LMTP_UNKNOWN : LMTP_MALFORMED;
}

static void malformed(struct lmtp_message *m, const char *what)
{
    *m = (struct lmtp_message){.type = LMTP_MALFORMED};
    err_set(&m->err, ERR_SYNTAX, "%s", what);
}

static void check_tokens(struct lmtp_message *m)
{
    bool buffer = m->type == LMTP_BUFFER;
    if (m->prompt && m->text)
        complain(m, "text", "is `prompt` in other words: give one of them");
    else if (!m->prompt && !m->text && !m->buffer && !m->drop)
        complain(m, "prompt", "is missing");
    else if (buffer && !m->save == !m->drop)
        complain(m, "save", "or `drop` must name a buffer");
    else if (m->type == LMTP_SCORE && m->scored && m->scored_text)
        complain(m, "scored_text", "is `scored` in other words: give one of them");
    else if (m->type == LMTP_SCORE && !m->n_scored && !m->n_scored_text)
        complain(m, "scored", "must be a list of at least one token id");
    else if (m->type == LMTP_GENERATE && !m->n_prompt && !m->text && !m->buffer)
        complain(m, "prompt", "must have at least one token: begin with the model's BOS");
    else if (m->session && m->save)
        complain(m, "save", "is of one connection, `session` of several: give one of them");
}

static void check(struct lmtp_message *m, const char *type, size_t n)
{
    if (!m->id.text[0]) {
        m->err = (struct err)ERR_INIT;
        complain(m, "stream_id", "must be an integer or a short string");
    } else if (m->type == LMTP_UNKNOWN) {
        m->err = (struct err)ERR_INIT;
        err_set(&m->err, ERR_VALIDATION, "Unknown command: %.*s", (int)(n < 64 ? n : 64), type);
    } else if (m->type == LMTP_CANCEL && !m->target.text[0]) {
        complain(m, "data.stream_id", "must name the stream to cancel");
    } else if (m->type == LMTP_RESUME && !m->session) {
        complain(m, "session", "is missing");
    } else if (m->type == LMTP_GENERATE || m->type == LMTP_SCORE || m->type == LMTP_BUFFER) {
        check_tokens(m);
    }
}

void lmtp_parse(const char *p, size_t n, struct arena *a, struct lmtp_message *m)
{
    const char *space = n ? memchr(p, ' ', n) : NULL, *key = NULL;
    size_t n_type = space ? (size_t)(space - p) : 0, n_key = 0;
    *m = (struct lmtp_message){
        .max_tokens = LMTP_DEFAULT_TOKENS, .top_logprobs = 1, .buffer_length = UINT32_MAX};
    m->type = type_of(p, n_type);
    struct message_reader r = {.arena = a, .m = m};
    if (m->type == LMTP_MALFORMED) {
        malformed(m, "a message is a type, a space and a JSON object");
        return;
    }
    r.s = json_reader(space + 1, (size_t)(p + n - (space + 1)));
    if (jr_next(&r.s) != JR_OBJECT) {
        malformed(m, "what follows the type must be a JSON object");
        return;
    }
    jr_open(&r.s, '{');
    for (bool first = true; jr_more(&r.s, '}', &first) && jr_name(&r.s, &key, &n_key);)
        read_field(&r, key, n_key);
    if (!jr_ended(&r.s)) {
        malformed(m, "the object is not valid JSON, or something follows it");
        return;
    }
    m->return_text |= m->text || m->scored_text; /* a client that sends text cannot decode ids */
    check(m, p, n_type);
}
