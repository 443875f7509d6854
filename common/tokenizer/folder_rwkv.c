/* The vocabulary of RWKV's World models: lines of an id, a literal of Python and its number of
 * bytes. */
#include "common/cleanup.h"
#include "common/tokenizer/folder_impl.h"
#include "common/tokenizer/longest.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

enum { TOKEN_BYTES_MAX = 512 };
static const char END[] = "<|rwkv_tokenizer_end_of_text|>"; /* id 0, which no line has */

struct token {
    char bytes[TOKEN_BYTES_MAX];
    size_t n;
};

static bool put(struct token *t, const char *s, size_t n)
{
    if (t->n + n > sizeof(t->bytes))
        return false;
    memcpy(t->bytes + t->n, s, n);
    t->n += n;
    return true;
}

/* A character of a str, or a byte of bytes. */
static bool put_code(struct token *t, uint32_t c, bool bytes)
{
    char utf8[4] = {(char)c};
    const bool surrogate = c >= 0xd800 && c < 0xe000;
    if (c > 0x10ffff || surrogate)
        return false;
    return put(t, utf8, bytes ? 1 : (size_t)utf8_encode(c, utf8));
}

/* The digits of \x, \u and \U; -1: others. */
static int64_t hex(const char *s, const char *end, int digits)
{
    int64_t v = 0;
    if (end - s < digits)
        return -1;
    for (int i = 0; i < digits; i++) {
        const char c = s[i];
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* What follows a backslash at *s. */
static bool escape(struct token *t, const char **s, const char *end, bool bytes)
{
    static const char letters[] = "ntr\\'\"", means[] = "\n\t\r\\'\"";
    const char c = *(*s)++, *simple = strchr(letters, c);
    if (c && simple)
        return put(t, means + (simple - letters), 1);
    const int digits = c == 'x' ? 2 : bytes ? 0 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const int64_t code = digits ? hex(*s, end, digits) : -1;
    *s += digits;
    return code >= 0 && put_code(t, (uint32_t)code, bytes);
}

/* A literal of Python, as repr() writes one. */
static bool literal(struct token *t, const char *s, size_t n)
{
    const bool bytes = n && *s == 'b';
    const char *end = s + n;
    s += bytes;
    t->n = 0;
    if (end - s < 2 || (*s != '\'' && *s != '"') || end[-1] != *s)
        return false;
    for (s++, end--; s < end;) {
        const char *c = s++;
        const bool good = *c != '\\' ? put(t, c, 1) : s < end && escape(t, &s, end, bytes);
        if (!good)
            return false;
    }
    return s == end && t->n;
}

/* False: the line is none of such a file. */
static bool read_line(const char *s, size_t n, uint32_t *id, struct token *t)
{
    const char *gap = memchr(s, ' ', n), *last = memrchr(s, ' ', n);
    if (!gap || last == gap)
        return false;
    char *end;
    const unsigned long number = strtoul(s, &end, 10), bytes = strtoul(last + 1, NULL, 10);
    *id = (uint32_t)number;
    return end == gap && number >= 1 && number < VOCAB_MAX_ID &&
           literal(t, gap + 1, (size_t)(last - gap - 1)) && bytes == t->n;
}

/* A text with a byte that no token has would be no tokens. */
static int check_bytes(const struct vocab *ids, struct err *e)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        if (vocab_find(ids, &c, 1) == NO_ID)
            return err_set(e, ERR_VALIDATION, "no token is the byte 0x%02x", byte);
    }
    return 0;
}

/* The vocabulary, without END. */
static int put_tokens(struct tok_folder *f, struct buf *b, char *text, struct err *e)
{
    struct token t;
    char *rest = text, *s;
    for (uint32_t number = 1, id; (s = strsep(&rest, "\n")); number++) {
        size_t n = strlen(s);
        n -= n && s[n - 1] == '\r';
        if (n == 0)
            continue;
        if (!read_line(s, n, &id, &t))
            return err_set(e, ERR_VALIDATION,
                           "line %u is no id, literal of Python and number of its bytes", number);
        if (vocab_put(&f->ids, t.bytes, t.n, id, e))
            return -1;
        buf_ch(b, ',');
        longest_put_bytes(b, t.bytes, t.n);
        buf_fmt(b, ":%u", id);
    }
    return check_bytes(&f->ids, e);
}

int folder_rwkv(struct tok_folder *f, struct folder_text *t, struct err *e)
{
    size_t n;
    CLEANUP(cleanup_free) char *text = folder_read(f, FOLDER_RWKV, &n, e);
    if (!text)
        return -1;
    if (strlen(text) != n)
        return err_set(e, ERR_VALIDATION, "a zero byte");
    longest_put_steps(&t->steps);
    longest_put_model(&t->model, END, sizeof(END) - 1);
    buf_fmt(&t->model, "\"%s\":0", END);
    if (put_tokens(f, &t->model, text, e))
        return -1;
    buf_str(&t->model, "}}");
    folder_add(f, 0, END, sizeof(END) - 1, true);
    t->bos = t->eos = END;
    return 0;
}
