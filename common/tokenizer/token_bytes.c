/* token_bytes.c - the bytes each token adds to a text, also for tokens that are parts of a
 * character. */
#include "common/tokenizer/byte_chars.h"
#include "common/tokenizer/byte_token.h"
#include "common/tokenizer/tokenizer_impl.h"
#include "common/utf8.h"
#include <string.h>

struct bytes_work {
    struct decode_work run;
    struct buf text;
    size_t before; /* bytes of the literal token, decoded alone */
    bool bytes, fallback;
};

static bool has_step(const struct decoder *d, enum decode_kind kind)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->v[i].kind == kind)
            return true;
    return false;
}

/* Converts byte characters to bytes; false: one represents no byte. */
static bool visible_bytes(const char *s, size_t n, struct buf *out)
{
    size_t len = out->len;
    for (size_t i = 0, c; i < n; i += c) {
        int b = char_to_byte(utf8_decode(s + i, n - i, &c));
        if (b < 0) {
            out->len = len;
            return false;
        }
        buf_ch(out, (char)b);
    }
    return true;
}

/* Decodes a literal token, and `s` after it if it is not NULL. */
static void decode_after(const struct tokenizer *t, struct bytes_work *w, const char *s, size_t n)
{
    strings_reset(&w->run.in);
    buf_reset(&w->text);
    buf_str(&w->run.in.text, "x");
    strings_close(&w->run.in);
    if (s) {
        buf_add(&w->run.in.text, s, n);
        strings_close(&w->run.in);
    }
    decoder_run(&t->decoder, &w->run, &w->text);
}

/* The text after that of the literal token. */
static void decoded_bytes(const struct tokenizer *t, struct bytes_work *w, const char *s, size_t n,
                          struct buf *out)
{
    decode_after(t, w, s, n);
    if (w->text.len > w->before)
        buf_add(out, w->text.p + w->before, w->text.len - w->before);
}

static void token_bytes(const struct tokenizer *t, struct bytes_work *w, uint32_t id,
                        struct buf *out)
{
    size_t n;
    const char *s = vocab_text(&t->added.text, id, &n);
    if (added_special(&t->added, id))
        return;
    if (s) { /* an added token is literal */
        buf_add(out, s, n);
        return;
    }
    s = vocab_text(&t->vocab, id, &n);
    if (!s)
        return;
    if (w->bytes) {
        if (!visible_bytes(s, n, out))
            buf_add(out, s, n);
        return;
    }
    int byte = w->fallback ? byte_token(s, n) : -1;
    if (byte >= 0)
        buf_ch(out, (char)byte);
    else
        decoded_bytes(t, w, s, n, out);
}

int tokenizer_token_bytes(const struct tokenizer *t, struct buf *bytes, size_t *end)
{
    struct bytes_work w = {.bytes = has_step(&t->decoder, DECODE_BYTES),
                           .fallback = has_step(&t->decoder, DECODE_FALLBACK)};
    decode_after(t, &w, NULL, 0);
    w.before = w.text.len;
    uint32_t size = tokenizer_vocab_size(t);
    for (uint32_t id = 0; id < size; id++) {
        token_bytes(t, &w, id, bytes);
        end[id] = bytes->len;
    }
    bool oom = bytes->oom || w.text.oom || w.run.in.text.oom;
    decode_work_free(&w.run);
    buf_free(&w.text);
    return oom ? -1 : 0;
}
