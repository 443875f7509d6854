#include "common/template/lexer.h"
#include "common/template/bigint.h"
#include "common/template/space.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct lexer {
    struct vm *vm;
    const char *s; /* newlines are normalised to \n, the last one is removed */
    size_t n, at;
    uint32_t line;
    bool line_starting; /* the preceding text ended in a newline */
    struct tokens *out;
};

static const char *const names[] = {
    [T_EOF] = "end of template",
    [T_DATA] = "template data / text",
    [T_VARIABLE_BEGIN] = "begin of print statement",
    [T_VARIABLE_END] = "end of print statement",
    [T_BLOCK_BEGIN] = "begin of statement block",
    [T_BLOCK_END] = "end of statement block",
    [T_NAME] = "name",
    [T_STRING] = "string",
    [T_INTEGER] = "integer",
    [T_FLOAT] = "float",
};

/* longest first */
static const struct operator
{
    char text[3];
    enum token_type type;
}
operators[] = {
    {"//", T_FLOORDIV}, {"**", T_POW},   {"==", T_EQ},      {"!=", T_NE},      {">=", T_GE},
    {"<=", T_LE},       {"+", T_ADD},    {"-", T_SUB},      {"/", T_DIV},      {"*", T_MUL},
    {"%", T_MOD},       {"~", T_TILDE},  {"[", T_LBRACKET}, {"]", T_RBRACKET}, {"(", T_LPAREN},
    {")", T_RPAREN},    {"{", T_LBRACE}, {"}", T_RBRACE},   {">", T_GT},       {"<", T_LT},
    {"=", T_ASSIGN},    {".", T_DOT},    {":", T_COLON},    {"|", T_PIPE},     {",", T_COMMA},
    {";", T_SEMICOLON},
};

const char *token_name(enum token_type t)
{
    if (t < sizeof(names) / sizeof(*names))
        return names[t];
    for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++)
        if (operators[i].type == t)
            return operators[i].text;
    return "?";
}

#define fail(lx, ...) ((lx)->vm->line = (lx)->line, vm_fail((lx)->vm, FAULT_SYNTAX, __VA_ARGS__))

static void emit(struct lexer *lx, enum token_type type, uint32_t line, struct val v)
{
    struct tokens *o = lx->out;
    if (o->n == o->cap)
        o->v = vm_grow(lx->vm, o->v, o->n, &o->cap, 256, sizeof(*o->v));
    o->v[o->n++] = (struct token){type, line, v};
}

static void count_lines(struct lexer *lx, size_t from, size_t to)
{
    for (const char *p = lx->s + from; (p = memchr(p, '\n', (size_t)(lx->s + to - p))); p++)
        lx->line++;
}

static bool looking_at(const struct lexer *lx, size_t at, const char *s)
{
    size_t n = strlen(s);
    return at + n <= lx->n && !memcmp(lx->s + at, s, n);
}

/* ---------------------------------------------------------------- between tags */
/* Emits the text up to a tag, whose delimiter at `end` is followed by `sign`. */
static void emit_data(struct lexer *lx, size_t end, char sign, bool may_lstrip)
{
    const char *p = lx->s + lx->at;
    size_t n = end - lx->at, keep = n;
    if (sign == '-') {
        keep = trimmed_len(p, n);
    } else if (sign != '+' && may_lstrip) {
        size_t line = n;
        while (line && p[line - 1] != '\n')
            line--;
        if ((line > 0 || lx->line_starting) && trimmed_len(p + line, n - line) == 0)
            keep = line;
    }
    if (keep)
        emit(lx, T_DATA, lx->line, val_wrap(lx->vm, p, keep));
    count_lines(lx, lx->at, end);
    lx->at = end;
}

/* After the closing delimiter of a block or comment: `-` strips white space, `+` nothing; otherwise
 * one newline is removed (trim_blocks). */
static void after_tag(struct lexer *lx, char sign, bool trim_newline)
{
    size_t from = lx->at;
    if (sign == '-')
        lx->at += space_prefix(lx->s + lx->at, lx->n - lx->at);
    else if (sign != '+' && trim_newline && lx->at < lx->n && lx->s[lx->at] == '\n')
        lx->at++;
    count_lines(lx, from, lx->at);
    lx->line_starting = lx->at > 0 && lx->s[lx->at - 1] == '\n';
}

static char sign_at(const struct lexer *lx, size_t at)
{
    return at < lx->n && (lx->s[at] == '-' || lx->s[at] == '+') ? lx->s[at] : 0;
}

static void comment(struct lexer *lx)
{
    size_t start = lx->at;
    lx->at += 2 + (sign_at(lx, lx->at + 2) != 0);
    const char *end = memmem(lx->s + lx->at, lx->n - lx->at, "#}", 2);
    if (!end)
        fail(lx, "Missing end of comment tag");
    size_t e = (size_t)(end - lx->s);
    char sign = e > lx->at ? sign_at(lx, e - 1) : 0;
    lx->at = e + 2;
    count_lines(lx, start, lx->at);
    after_tag(lx, sign, true);
}

/* Length of `{%` [sign] word [sign] `%}` at `at`, or 0. *close: the sign before `%}`. */
static size_t bare_tag(const struct lexer *lx, size_t at, const char *word, char *open, char *close)
{
    size_t i = at + 2;
    *open = sign_at(lx, i);
    i += *open != 0;
    i += space_prefix(lx->s + i, lx->n - i);
    if (!looking_at(lx, i, word))
        return 0;
    i += strlen(word);
    i += space_prefix(lx->s + i, lx->n - i);
    *close = sign_at(lx, i);
    i += *close != 0;
    return looking_at(lx, i, "%}") ? i + 2 - at : 0;
}

static bool raw_block(struct lexer *lx)
{
    char open, close;
    size_t len = bare_tag(lx, lx->at, "raw", &open, &close);
    if (!len || close == '+')
        return false;
    count_lines(lx, lx->at, lx->at + len);
    lx->at += len;
    after_tag(lx, close, false);
    for (size_t at = lx->at; at < lx->n; at += 2) {
        const char *p = memmem(lx->s + at, lx->n - at, "{%", 2);
        if (!p)
            break;
        at = (size_t)(p - lx->s);
        if (!(len = bare_tag(lx, at, "endraw", &open, &close)))
            continue;
        emit_data(lx, at, open, true);
        count_lines(lx, lx->at, lx->at + len);
        lx->at += len;
        after_tag(lx, close, true);
        return true;
    }
    fail(lx, "Missing end of raw directive");
}

/* ---------------------------------------------------------------- inside tags */
static bool is_word(uint32_t c)
{
    if (c < 0x80)
        return isalnum((int)c) || c == '_';
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k <= UTF8PROC_CATEGORY_LO || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_NO;
}

static size_t digits_run(const struct lexer *lx, size_t at, int (*is)(int)) /* (_?digit)* */
{
    size_t i = at;
    for (;;) {
        size_t j = i + (i < lx->n && lx->s[i] == '_');
        if (j >= lx->n || !is((unsigned char)lx->s[j]))
            return i - at;
        i = j + 1;
    }
}

static int is_bin(int c) { return c == '0' || c == '1'; }
static int is_oct(int c) { return c >= '0' && c <= '7'; }
static int is_dec(int c) { return c >= '0' && c <= '9'; }
static int is_hex(int c) { return isxdigit(c); }
static int is_zero(int c) { return c == '0'; }

static size_t float_len(const struct lexer *lx, size_t at) /* 0: not a float */
{
    size_t i = at, frac = 0, e;
    if (at > 0 && lx->s[at - 1] == '.')
        return 0;
    if (i >= lx->n || !is_dec((unsigned char)lx->s[i]))
        return 0;
    i += digits_run(lx, i, is_dec);
    if (i + 1 < lx->n && lx->s[i] == '.' && is_dec((unsigned char)lx->s[i + 1]))
        frac = 1 + digits_run(lx, i + 1, is_dec);
    i += frac;
    e = i + 1;
    if (i < lx->n && (lx->s[i] == 'e' || lx->s[i] == 'E')) {
        e += e < lx->n && (lx->s[e] == '+' || lx->s[e] == '-');
        if (e < lx->n && is_dec((unsigned char)lx->s[e]))
            return e + digits_run(lx, e, is_dec) - at;
    }
    return frac ? i - at : 0;
}

static void number(struct lexer *lx)
{
    char text[512], *end;
    size_t n = float_len(lx, lx->at), k = 0;
    bool is_float = n > 0;
    int base = 10;
    if (!is_float) {
        static const struct {
            char c;
            int base;
            int (*is)(int);
        } kinds[] = {{'b', 2, is_bin}, {'o', 8, is_oct}, {'x', 16, is_hex}};
        for (size_t i = 0; i < 3 && lx->s[lx->at] == '0' && lx->at + 1 < lx->n; i++)
            if (tolower((unsigned char)lx->s[lx->at + 1]) == kinds[i].c &&
                (n = digits_run(lx, lx->at + 2, kinds[i].is))) {
                base = kinds[i].base;
                n += 2;
                break;
            }
        if (!n)
            n = digits_run(lx, lx->at, lx->s[lx->at] == '0' ? is_zero : is_dec);
    }
    if (n >= sizeof(text))
        fail(lx, "number of %zu digits", n);
    for (size_t i = base == 10 ? 0 : 2; i < n; i++)
        if (lx->s[lx->at + i] != '_')
            text[k++] = lx->s[lx->at + i];
    text[k] = 0;
    struct val v;
    errno = 0;
    if (is_float)
        v = val_float(strtod(text, NULL));
    else
        v = val_int(strtoll(text, &end, base));
    if (!is_float && errno == ERANGE) {
        v = big_parse(lx->vm, text, (unsigned)base);
    }
    emit(lx, is_float ? T_FLOAT : T_INTEGER, lx->line, v);
    lx->at += n;
}

static uint32_t hex_escape(struct lexer *lx, const char *p, size_t left, int n, const char *kind)
{
    uint32_t cp = 0;
    for (int i = 0; i < n; i++) {
        if ((size_t)i >= left || !isxdigit((unsigned char)p[i]))
            fail(lx, "truncated %s escape", kind);
        cp = cp * 16 + (uint32_t)(isdigit((unsigned char)p[i])
                                      ? p[i] - '0'
                                      : tolower((unsigned char)p[i]) - 'a' + 10);
    }
    return cp;
}

/* One escape after the backslash at p[-1]; returns the bytes used. */
static size_t escape(struct lexer *lx, struct strbuf *b, const char *p, size_t left)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *f = memchr(from, *p, sizeof(from) - 1);
    if (f) {
        sb_ch(lx->vm, b, to[f - from]);
        return 1;
    }
    if (*p == '\n')
        return 1;
    if (is_oct((unsigned char)*p)) {
        uint32_t cp = 0;
        size_t i = 0;
        for (; i < 3 && i < left && is_oct((unsigned char)p[i]); i++)
            cp = cp * 8 + (uint32_t)(p[i] - '0');
        sb_cp(lx->vm, b, cp);
        return i;
    }
    int n = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
    if (!n) {
        sb_ch(lx->vm, b, '\\');
        return 0;
    }
    uint32_t cp = hex_escape(lx, p + 1, left - 1, n,
                             n == 2   ? "\\xXX"
                             : n == 4 ? "\\uXXXX"
                                      : "\\UXXXXXXXX");
    if (cp > 0x10ffff)
        fail(lx, "illegal Unicode character");
    sb_cp(lx->vm, b, cp);
    return (size_t)n + 1;
}

static void string(struct lexer *lx)
{
    char quote = lx->s[lx->at];
    size_t end = lx->at + 1;
    bool escaped = false;
    while (end < lx->n && lx->s[end] != quote) {
        escaped |= lx->s[end] == '\\';
        end += 1 + (lx->s[end] == '\\');
    }
    if (end >= lx->n)
        fail(lx, "unexpected char %s at %zu", quote == '"' ? "'\"'" : "\"'\"", lx->at);
    const char *p = lx->s + lx->at + 1;
    size_t n = end - lx->at - 1;
    struct val v;
    if (!escaped) {
        v = val_wrap(lx->vm, p, n);
    } else {
        struct strbuf b = {0};
        for (size_t i = 0; i < n; i++)
            if (p[i] == '\\' && i + 1 < n)
                i += escape(lx, &b, p + i + 1, n - i - 1);
            else
                sb_ch(lx->vm, &b, p[i]);
        v = sb_val(lx->vm, &b);
    }
    emit(lx, T_STRING, lx->line, v);
    count_lines(lx, lx->at, end);
    lx->at = end + 1;
}

static void name(struct lexer *lx)
{
    size_t i = lx->at, len;
    while (i < lx->n && is_word(utf8_decode(lx->s + i, lx->n - i, &len)))
        i += len;
    if (i == lx->at) {
        utf8_decode(lx->s + i, lx->n - i, &len);
        fail(lx, "unexpected char '%.*s' at %zu", (int)len, lx->s + i, lx->at);
    }
    emit(lx, T_NAME, lx->line, val_wrap(lx->vm, lx->s + lx->at, i - lx->at));
    lx->at = i;
}

enum { MAX_NESTED = 256 };
struct braces {
    char v[MAX_NESTED];
    int n;
};

static void balance(struct lexer *lx, struct braces *b, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (b->n == MAX_NESTED)
            fail(lx, "more than %d brackets deep", MAX_NESTED);
        b->v[b->n++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (!b->n)
            fail(lx, "unexpected '%c'", c);
        if (b->v[--b->n] != c)
            fail(lx, "unexpected '%c', expected '%c'", c, b->v[b->n]);
    }
}

static void operator_or_name(struct lexer *lx, struct braces *b)
{
    for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++)
        if (looking_at(lx, lx->at, operators[i].text)) {
            balance(lx, b, lx->s[lx->at]);
            emit(lx, operators[i].type, lx->line, MISSING);
            lx->at += strlen(operators[i].text);
            return;
        }
    name(lx);
}

/* Tokens of one tag, from after its opening delimiter to after its closing one. */
static void tag(struct lexer *lx, bool block)
{
    const char *close = block ? "%}" : "}}";
    struct braces braces = {.n = 0};
    while (lx->at < lx->n) {
        char c = lx->s[lx->at];
        char sign = c == '-' || (block && c == '+') ? c : 0;
        if (!braces.n && looking_at(lx, lx->at + (sign != 0), close)) {
            emit(lx, block ? T_BLOCK_END : T_VARIABLE_END, lx->line, MISSING);
            lx->at += 2 + (sign != 0);
            after_tag(lx, sign, block);
            return;
        }
        size_t space = space_prefix(lx->s + lx->at, lx->n - lx->at);
        if (space) {
            count_lines(lx, lx->at, lx->at + space);
            lx->at += space;
        } else if (is_dec((unsigned char)c)) {
            number(lx);
        } else if (c == '"' || c == '\'') {
            string(lx);
        } else {
            operator_or_name(lx, &braces);
        }
    }
}

/* ---------------------------------------------------------------- all of it */
static void normalize(struct lexer *lx, const char *src, size_t n)
{
    char *p = vm_alloc(lx->vm, n + 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (src[i] == '\r' && i + 1 < n && src[i + 1] == '\n')
            continue;
        p[k++] = src[i] == '\r' ? '\n' : src[i];
    }
    if (k && p[k - 1] == '\n')
        k--;
    lx->s = p;
    lx->n = k;
}

void lex_template(struct vm *vm, const char *src, size_t n, struct tokens *out)
{
    struct lexer lx = {.vm = vm, .line = 1, .line_starting = true, .out = out};
    normalize(&lx, src, n);
    while (lx.at < lx.n) {
        size_t i = lx.at;
        const char *p;
        while ((p = memchr(lx.s + i, '{', lx.n - i))) {
            i = (size_t)(p - lx.s);
            if (i + 1 < lx.n && strchr("{%#", lx.s[i + 1]) && lx.s[i + 1])
                break;
            i++;
        }
        if (!p) {
            emit(&lx, T_DATA, lx.line, val_wrap(vm, lx.s + lx.at, lx.n - lx.at));
            count_lines(&lx, lx.at, lx.n);
            break;
        }
        char kind = lx.s[i + 1], sign = sign_at(&lx, i + 2);
        emit_data(&lx, i, sign, kind != '{');
        if (kind == '#') {
            comment(&lx);
        } else if (kind == '{' || !raw_block(&lx)) {
            emit(&lx, kind == '{' ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN, lx.line, MISSING);
            lx.at += 2 + (sign != 0);
            tag(&lx, kind == '%');
        }
    }
    emit(&lx, T_EOF, lx.line, MISSING);
}
