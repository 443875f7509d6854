#include "common/tokenizer/decoder.h"
#include "common/tokenizer/byte_chars.h"
#include "common/tokenizer/byte_token.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- lists of strings */
static void strings_free(struct strings *s)
{
    buf_free(&s->text);
    buf_free(&s->end);
}

void decode_work_free(struct decode_work *w)
{
    strings_free(&w->in);
    strings_free(&w->tmp);
    buf_free(&w->part);
    regex_match_free(w->match);
    *w = (struct decode_work){0};
}

void strings_reset(struct strings *s)
{
    buf_reset(&s->text);
    buf_reset(&s->end);
}

void strings_close(struct strings *s) { buf_add(&s->end, &s->text.len, sizeof s->text.len); }

static const char *strings_at(const struct strings *s, size_t i, size_t *n)
{
    const size_t *end = (const size_t *)(const void *)s->end.p;
    size_t start = i ? end[i - 1] : 0;
    *n = end[i] - start;
    return s->text.p ? s->text.p + start : "";
}

/* ---------------------------------------------------------------- steps */
/* Appends bytes as text: each maximal ill-formed subsequence becomes one U+FFFD. */
static void add_lossy(struct buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t run = i, len;
        while (i < n && (len = utf8_valid_len(s + i, n - i)))
            i += len;
        buf_add(out, s + run, i - run);
        if (i == n)
            break;
        buf_str(out, "\xEF\xBF\xBD");
        /* an incomplete character is replaced once, not per byte */
        size_t best = 1;
        for (size_t k = 2; k <= 3 && i + k <= n; k++)
            if (utf8_incomplete_tail(s + i, k) == k)
                best = k;
        i += best;
    }
}

static void bytes(struct strings *in, struct strings *out, struct buf *raw)
{
    buf_reset(raw);
    for (size_t i = 0, n; i < strings_n(in); i++) {
        const char *s = strings_at(in, i, &n);
        size_t mark = raw->len, len;
        for (size_t k = 0; k < n; k += len) {
            int byte = char_to_byte(utf8_decode(s + k, n - k, &len));
            if (byte < 0) { /* not in the byte alphabet: the token is literal text */
                raw->len = mark;
                buf_add(raw, s, n);
                break;
            }
            buf_ch(raw, (char)byte);
        }
    }
    add_lossy(&out->text, raw->p ? raw->p : "", raw->len);
    out->text.oom |= raw->oom;
    strings_close(out);
}

static void flush_bytes(struct buf *run, struct strings *out)
{
    if (!run->len)
        return;
    if (utf8_valid(run->p, run->len)) {
        buf_add(&out->text, run->p, run->len);
        strings_close(out);
    } else {
        for (size_t i = 0; i < run->len; i++) {
            buf_str(&out->text, "\xEF\xBF\xBD");
            strings_close(out);
        }
    }
    buf_reset(run);
}

static void fallback(struct strings *in, struct strings *out, struct buf *run)
{
    buf_reset(run);
    for (size_t i = 0, n; i < strings_n(in); i++) {
        const char *s = strings_at(in, i, &n);
        int byte = byte_token(s, n);
        if (byte >= 0) {
            buf_ch(run, (char)byte);
            continue;
        }
        flush_bytes(run, out);
        buf_add(&out->text, s, n);
        strings_close(out);
    }
    flush_bytes(run, out);
}

static void strip(const struct decode_step *st, const char *s, size_t n, struct buf *out)
{
    char ch[4];
    size_t len = utf8_encode(st->ch, ch), from = 0;
    for (uint32_t i = 0; i < st->start && n - from >= len && !memcmp(s + from, ch, len); i++)
        from += len;
    for (uint32_t i = 0; i < st->stop && n - from >= len && !memcmp(s + n - len, ch, len); i++)
        n -= len;
    buf_add(out, s + from, n - from);
}

static void replace_text(const char *s, size_t n, const char *what, const char *with,
                         struct buf *out)
{
    size_t wn = strlen(what), at = 0;
    const char *hit;
    while (wn && (hit = memmem(s + at, n - at, what, wn))) {
        buf_add(out, s + at, (size_t)(hit - s) - at);
        buf_str(out, with);
        at = (size_t)(hit - s) + wn;
    }
    buf_add(out, s + at, n - at);
}

static void replace(const struct decode_step *st, const char *s, size_t n, void **match,
                    struct buf *out)
{
    if (!st->regex) {
        replace_text(s, n, st->what, st->text, out);
        return;
    }
    size_t at = 0, a, b;
    if (!*match && !(*match = regex_match_new())) {
        out->oom = true;
        return;
    }
    struct regex_iter it = regex_iter(st->regex, s, n, *match);
    while (regex_next(&it, &a, &b) > 0) {
        buf_add(out, s + at, a - at);
        buf_str(out, st->text);
        at = b;
    }
    buf_add(out, s + at, n - at);
}

static void metaspace(const struct decode_step *st, const char *s, size_t n, bool first,
                      struct buf *out)
{
    char ch[4];
    size_t len = utf8_encode(st->ch, ch);
    for (size_t i = 0; i < n;) {
        if (len && n - i >= len && memcmp(s + i, ch, len) == 0) {
            if (!first || !st->flag)
                buf_ch(out, ' ');
            i += len;
        } else {
            buf_ch(out, s[i++]);
        }
    }
}

static void clean_up(struct buf *text, size_t from, struct buf *tmp)
{
    static const char *const pairs[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        buf_reset(tmp);
        replace_text(text->p + from, text->len - from, pairs[i][0], pairs[i][1], tmp);
        text->len = from;
        buf_add(text, tmp->p ? tmp->p : "", tmp->len);
        text->oom |= tmp->oom;
    }
}

static void wordpiece(const struct decode_step *st, const char *s, size_t n, bool first,
                      struct buf *tmp, struct buf *out)
{
    size_t pn = strlen(st->what), from = out->len;
    if (first) {
        buf_add(out, s, n);
    } else if (n >= pn && memcmp(s, st->what, pn) == 0) {
        buf_add(out, s + pn, n - pn);
    } else {
        buf_ch(out, ' ');
        buf_add(out, s, n);
    }
    if (st->flag && out->p)
        clean_up(out, from, tmp);
}

static void one(const struct decode_step *st, struct decode_work *w, const char *s, size_t n,
                bool first, bool last, struct buf *out)
{
    switch (st->kind) {
    case DECODE_STRIP:
        strip(st, s, n, out);
        break;
    case DECODE_REPLACE:
        replace(st, s, n, &w->match, out);
        break;
    case DECODE_METASPACE:
        metaspace(st, s, n, first, out);
        break;
    case DECODE_WORDPIECE:
        wordpiece(st, s, n, first, &w->part, out);
        break;
    case DECODE_SUFFIX:
        replace_text(s, n, st->what, last ? "" : " ", out);
        break;
    default:
        buf_add(out, s, n);
    }
}

static void run_step(const struct decode_step *st, struct decode_work *w, struct strings *in,
                     struct strings *out)
{
    size_t count = strings_n(in), n;
    strings_reset(out);
    if (st->kind == DECODE_BYTES) {
        bytes(in, out, &w->part);
    } else if (st->kind == DECODE_FALLBACK) {
        fallback(in, out, &w->part);
    } else if (st->kind == DECODE_FUSE) {
        buf_add(&out->text, in->text.p ? in->text.p : "", in->text.len);
        strings_close(out);
    } else {
        for (size_t i = 0; i < count; i++) {
            const char *s = strings_at(in, i, &n);
            one(st, w, s, n, i == 0, i + 1 == count, &out->text);
            strings_close(out);
        }
    }
    out->text.oom |= in->text.oom | in->end.oom;
}

void decoder_run(const struct decoder *d, struct decode_work *w, struct buf *out)
{
    struct strings *from = &w->in, *to = &w->tmp;
    for (uint32_t i = 0; i < d->n; i++) {
        run_step(&d->v[i], w, from, to);
        struct strings *x = from;
        from = to;
        to = x;
    }
    if (d->present) {
        buf_add(out, from->text.p ? from->text.p : "", from->text.len);
    } else {
        for (size_t i = 0, n; i < strings_n(from); i++) {
            const char *s = strings_at(from, i, &n);
            if (i)
                buf_ch(out, ' ');
            buf_add(out, s, n);
        }
    }
    out->oom |= from->text.oom | from->end.oom;
}

/* ---------------------------------------------------------------- loading */
enum { MAX_STEPS = 64, MAX_DEPTH = 16 };

void tok_decoder_free(struct decoder *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        free(d->v[i].what);
        free(d->v[i].text);
        regex_free(d->v[i].regex);
    }
    free(d->v);
    *d = (struct decoder){0};
}

static struct decode_step *add(struct decoder *d, enum decode_kind kind, struct err *e)
{
    if (d->n == MAX_STEPS)
        return err_set(e, ERR_VALIDATION, "more than %d steps", MAX_STEPS), NULL;
    struct decode_step *v = realloc(d->v, (d->n + 1) * sizeof *v);
    if (!v)
        return err_nomem(e), NULL;
    d->v = v;
    v[d->n] = (struct decode_step){.kind = kind};
    return &v[d->n++];
}

static uint32_t first_char(const char *s)
{
    size_t len;
    return *s ? utf8_decode(s, strlen(s), &len) : 0;
}

static int text_of(char **to, const char *s, struct err *e)
{
    return (*to = strdup(s)) ? 0 : err_nomem(e);
}

static int load_replace(struct decode_step *st, const cJSON *j, struct err *e)
{
    const cJSON *p = json_get(j, "pattern");
    const char *re = json_str(p, "Regex", NULL), *what = json_str(p, "String", NULL);
    if (!re && !what)
        return err_set(e, ERR_VALIDATION, "Replace: pattern: expected String or Regex");
    if (text_of(&st->text, json_str(j, "content", ""), e) != 0)
        return -1;
    if (what)
        return text_of(&st->what, what, e);
    return (st->regex = regex_compile(re, strlen(re), e)) ? 0 : -1;
}

static int load_one(struct decoder *d, const cJSON *j, enum decode_kind kind, struct err *e)
{
    struct decode_step *st = add(d, kind, e);
    if (!st)
        return -1;
    switch (kind) {
    case DECODE_REPLACE:
        return load_replace(st, j, e);
    case DECODE_STRIP:
        st->ch = first_char(json_str(j, "content", " "));
        st->start = (uint32_t)json_int(j, "start", 0);
        st->stop = (uint32_t)json_int(j, "stop", 0);
        return 0;
    case DECODE_METASPACE:
        st->ch = first_char(json_str(j, "replacement", "\xE2\x96\x81"));
        st->flag = strcmp(json_str(j, "prepend_scheme",
                                   json_bool(j, "add_prefix_space", true) ? "always" : "never"),
                          "never") != 0;
        return 0;
    case DECODE_WORDPIECE:
        st->flag = json_bool(j, "cleanup", true);
        return text_of(&st->what, json_str(j, "prefix", "##"), e);
    case DECODE_SUFFIX:
        return text_of(&st->what, json_str(j, "suffix", "</w>"), e);
    default:
        return 0;
    }
}

static int load(struct decoder *d, const cJSON *j, unsigned depth, struct err *e)
{
    static const struct {
        const char *type;
        enum decode_kind kind;
    } kinds[] = {{"ByteLevel", DECODE_BYTES},     {"ByteFallback", DECODE_FALLBACK},
                 {"Fuse", DECODE_FUSE},           {"Strip", DECODE_STRIP},
                 {"Replace", DECODE_REPLACE},     {"Metaspace", DECODE_METASPACE},
                 {"WordPiece", DECODE_WORDPIECE}, {"BPEDecoder", DECODE_SUFFIX}};
    const char *type = json_str(j, "type", "");
    const cJSON *item;
    if (strcmp(type, "Sequence") == 0 && depth < MAX_DEPTH) {
        cJSON_ArrayForEach(item, json_get(j, "decoders")) if (load(d, item, depth + 1, e) !=
                                                              0) return err_wrap(e, "Sequence");
        return 0;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(type, kinds[i].type) == 0)
            return load_one(d, j, kinds[i].kind, e);
    return err_set(e, ERR_VALIDATION, "unknown type \"%.40s\"", type);
}

int tok_decoder_load(struct decoder *d, const cJSON *j, struct err *e)
{
    d->present = j != NULL;
    return j ? load(d, j, 0, e) : 0;
}
