/* filters_html.c - layout filters: HTML, line wrapping, Python's pprint. */
#include "common/template/ast.h"
#include "common/template/filters.h"
#include "common/template/space.h"
#include "common/template/text.h"
#include "common/tokenizer/regex.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- attributes and tags */

FILTER(filter_xmlattr)
{
    struct strbuf b = {0};
    if (self.type == V_UNDEFINED)
        vm_fail_undefined(vm, self);
    if (self.type != V_DICT)
        vm_type_error(vm, "'%s' object has no attribute 'items'", val_type(self));
    for (uint32_t i = 0; i < self.d->n; i++) {
        struct val k = val_to_str(vm, self.d->e[i].k), v = self.d->e[i].v;
        if (v.type == V_NONE || v.type == V_UNDEFINED)
            continue;
        for (uint32_t j = 0; j < k.s->n; j++)
            if (strchr(" \t\n\r\f\v/>=", k.s->p[j]) && k.s->p[j])
                vm_type_error(vm, "Invalid character in attribute name: %s", val_repr_c(vm, k));
        if (b.n || arg_bool(vm, a, 0, true))
            sb_ch(vm, &b, ' ');
        struct val name = html_escape(vm, k), text = html_escape(vm, v);
        sb_add(vm, &b, name.s->p, name.s->n);
        sb_str(vm, &b, "=\"");
        sb_add(vm, &b, text.s->p, text.s->n);
        sb_ch(vm, &b, '"');
    }
    return val_markup(vm, sb_val(vm, &b), vm->autoescape);
}

/* Removes the text from `open` to `close`, inclusive. An unclosed `open` stays. */
static struct val without(struct vm *vm, struct val s, const char *open, const char *close)
{
    struct strbuf b = {0};
    const char *p = s.s->p, *end = p + s.s->n;
    vm_work(vm, (uint64_t)s.s->n * 4);
    for (;;) {
        const char *from = memmem(p, (size_t)(end - p), open, strlen(open));
        const char *to = from ? memmem(from, (size_t)(end - from), close, strlen(close)) : NULL;
        sb_add(vm, &b, p, (size_t)((to ? from : end) - p));
        if (!to)
            return sb_val(vm, &b);
        p = to + strlen(close);
    }
}

/* &#NN; and the names that markup writes. Python has 2,231 more. */
static struct val unescape(struct vm *vm, struct val s)
{
    static const struct {
        const char *name;
        uint32_t cp;
    } names[] = {{"amp", '&'},       {"lt", '<'},       {"gt", '>'},       {"quot", '"'},
                 {"apos", '\''},     {"nbsp", 0xa0},    {"copy", 0xa9},    {"reg", 0xae},
                 {"hellip", 0x2026}, {"ndash", 0x2013}, {"mdash", 0x2014}, {"laquo", 0xab},
                 {"raquo", 0xbb},    {"euro", 0x20ac}};
    struct strbuf b = {0};
    const char *p = s.s->p, *end = p + s.s->n;
    while (p < end) {
        const char *semi = *p == '&' ? memchr(p, ';', (size_t)(end - p < 32 ? end - p : 32)) : NULL;
        size_t n = semi ? (size_t)(semi - p - 1) : 0, i = 0;
        char text[32] = "", *stop = text;
        uint32_t cp = 0;
        if (n) {
            memcpy(text, p + 1, n);
            if (text[0] == '#') {
                bool hex = text[1] == 'x' || text[1] == 'X';
                unsigned long v = strtoul(text + 1 + hex, &stop, hex ? 16 : 10);
                cp = !*stop && stop > text + 1 + hex && v <= 0x10ffff ? (uint32_t)v : 0;
            }
            for (; i < sizeof(names) / sizeof(*names) && !cp; i++)
                cp = !strcmp(names[i].name, text) ? names[i].cp : 0;
        }
        if (cp)
            sb_cp(vm, &b, cp);
        else
            sb_ch(vm, &b, *p);
        p = cp ? semi + 1 : p + 1;
    }
    return sb_val(vm, &b);
}

FILTER(filter_striptags)
{
    (void)a;
    struct val s = val_markup(vm, val_to_str(vm, self), false);
    s = without(vm, without(vm, s, "<!--", "-->"), "<", ">");
    struct val none = NONE_VALUE;
    return unescape(vm, text_join(vm, val_cstr(vm, " "), text_split(vm, s, none, -1)));
}

/* ---------------------------------------------------------------- links */

#define HTTP                                                                                       \
    "(?i)\\A(?:(?:https?://|www\\.)(?:(?:[\\w%-]+\\.)+)?(?:[a-z]{2,63}|xn--[\\w%]{2,59})|"         \
    "(?:[\\w%-]{2,63}\\.)+(?:com|net|int|edu|gov|org|info|mil)|"                                   \
    "https?://"                                                                                    \
    "(?:[0-9]{1,3}(?:\\.[0-9]{1,3}){3}|\\[(?:[0-9a-f]{0,4}:){2}(?:[0-9a-f]{0,4}:?){1,6}\\]))"      \
    "(?::[0-9]{1,5})?(?:[/?#]\\S*)?\\z"
#define MAIL "\\A\\S+@\\w[\\w.-]*\\.\\w+\\z"

enum link_kind { LINK_HTTP, LINK_MAIL, LINK_KINDS };
struct link_patterns {
    struct regex *of[LINK_KINDS]; /* NULL: not compiled yet */
    void *match;
};

void link_patterns_free(struct link_patterns *p)
{
    if (!p)
        return;
    for (int i = 0; i < LINK_KINDS; i++)
        regex_free(p->of[i]);
    regex_match_free(p->match);
    free(p);
}

/* Compiling costs more than a thousand matches: the expressions are kept for the rendering. */
static bool is_match(struct vm *vm, enum link_kind kind, const char *s, size_t n)
{
    static const char *const sources[] = {HTTP, MAIL};
    struct link_patterns *p = vm->links ? vm->links : calloc(1, sizeof(*p));
    struct err e = ERR_INIT;
    size_t from, to;
    vm->links = p;
    if (!p || n > 4096)
        return false;
    if (!p->of[kind])
        p->of[kind] = regex_compile(sources[kind], strlen(sources[kind]), &e);
    if (!p->match)
        p->match = regex_match_new();
    if (!p->of[kind] || !p->match)
        return false;
    struct regex_iter it = regex_iter(p->of[kind], s, n, p->match);
    return regex_next(&it, &from, &to) == 1;
}

static bool begins(const char *p, const char *end, const char *with)
{
    return (size_t)(end - p) >= strlen(with) && !memcmp(p, with, strlen(with));
}

static bool ends(const char *p, const char *end, const char *with)
{
    return (size_t)(end - p) >= strlen(with) && !memcmp(end - strlen(with), with, strlen(with));
}

static size_t count(const char *p, const char *end, const char *of)
{
    size_t n = 0;
    for (; p < end; p++)
        n += begins(p, end, of);
    return n;
}

/* A trailing bracket belongs to the word if it was opened in it. */
static const char *balance(const char *p, const char *mid, const char *end)
{
    static const char *const pairs[][2] = {{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
    for (int i = 0; i < 3; i++) {
        size_t open = count(p, mid, pairs[i][0]), closed = count(p, mid, pairs[i][1]);
        size_t more = count(mid, end, pairs[i][1]);
        for (size_t k = open > closed ? open - closed : 0; k > 0 && more > 0; k--, more--) {
            const char *at = memmem(mid, (size_t)(end - mid), pairs[i][1], strlen(pairs[i][1]));
            mid = at + strlen(pairs[i][1]);
        }
    }
    return mid;
}

struct links {
    int64_t limit; /* -1: none */
    const char *rel, *target;
};

static void link_to(struct vm *vm, struct strbuf *b, const struct links *l, const char *scheme,
                    const char *p, size_t n, bool attributes)
{
    struct val text = val_str(vm, p, n);
    sb_fmt(vm, b, "<a href=\"%s%.*s\"", scheme, (int)n, p);
    sb_fmt(vm, b, attributes ? "%s%s>" : ">", l->rel, l->target);
    bool cut = attributes && l->limit >= 0 && text.s->n_chars > l->limit;
    if (cut)
        text = str_slice(vm, text, 0, l->limit);
    sb_add(vm, b, text.s->p, text.s->n);
    sb_str(vm, b, cut ? "...</a>" : "</a>");
}

static void urlize_word(struct vm *vm, struct strbuf *b, const struct links *l, const char *p,
                        const char *end)
{
    const char *from = p, *mid;
    vm_charge(vm, 100 + 2 * (uint64_t)(end - p));
    for (size_t n = 1; n && from < end;) {
        n = *from == '(' || *from == '<' ? 1 : begins(from, end, "&lt;") ? 4 : 0;
        from += n;
    }
    mid = end;
    for (size_t n = 1; n && mid > from;) {
        n = strchr(")>.,\n", mid[-1]) ? 1 : ends(from, mid, "&gt;") ? 4 : 0;
        mid -= n;
    }
    mid = balance(from, mid, end);
    sb_add(vm, b, p, (size_t)(from - p));
    size_t n = (size_t)(mid - from);
    bool mailto = begins(from, mid, "mailto:");
    bool http = begins(from, mid, "https://") || begins(from, mid, "http://");
    if (is_match(vm, LINK_HTTP, from, n))
        link_to(vm, b, l, http ? "" : "https://", from, n, true);
    else if (mailto && is_match(vm, LINK_MAIL, from + 7, n - 7)) {
        sb_fmt(vm, b, "<a href=\"%.*s\">%.*s</a>", (int)n, from, (int)n - 7, from + 7);
    } else if (memchr(from, '@', n) && !begins(from, mid, "www.") && !memchr(from, ':', n) &&
               *from != '@' && is_match(vm, LINK_MAIL, from, n)) {
        link_to(vm, b, l, "mailto:", from, n, false);
    } else {
        sb_add(vm, b, from, n);
    }
    sb_add(vm, b, mid, (size_t)(end - mid));
}

static const char *link_rel(struct vm *vm, const struct args *a)
{
    struct list *parts = list_new(vm, 4);
    struct val none = NONE_VALUE;
    if (arg_given(a, 3) && a->v[3].type != V_NONE)
        parts = text_split(vm, text_need(vm, a->v[3], "rel"), none, -1);
    if (arg_bool(vm, a, 1, false))
        list_push(vm, parts, val_cstr(vm, "nofollow"));
    list_push(vm, parts, val_cstr(vm, "noopener"));
    list_sort(vm, parts->v, parts->v, parts->n, false);
    struct list *once = list_new(vm, parts->n);
    for (uint32_t i = 0; i < parts->n; i++)
        if (!i || !val_eq(vm, parts->v[i], parts->v[i - 1]))
            list_push(vm, once, parts->v[i]);
    struct val s = html_escape(vm, text_join(vm, val_cstr(vm, " "), once));
    return vm_printf(vm, " rel=\"%.*s\"", (int)s.s->n, s.s->p);
}

FILTER(filter_urlize)
{
    struct links l = {-1, link_rel(vm, a), ""};
    struct strbuf b = {0};
    if (arg_given(a, 0) && a->v[0].type != V_NONE)
        l.limit = arg_int(vm, a, 0, -1);
    if (arg_given(a, 2) && a->v[2].type != V_NONE) {
        struct val t = html_escape(vm, a->v[2]);
        l.target = vm_printf(vm, " target=\"%.*s\"", (int)t.s->n, t.s->p);
    }
    struct val s = html_escape(vm, self);
    const char *p = s.s->p, *end = p + s.s->n;
    while (p < end) {
        size_t blank = space_prefix(p, (size_t)(end - p)), n = 0, len = 0;
        sb_add(vm, &b, p, blank);
        p += blank;
        while (p + n < end && !is_space(utf8_decode(p + n, (size_t)(end - p) - n, &len)))
            n += len;
        if (n)
            urlize_word(vm, &b, &l, p, p + n);
        p += n;
    }
    return val_markup(vm, sb_val(vm, &b), vm->autoescape);
}

/* ---------------------------------------------------------------- lines */

static bool word_char(unsigned char c) { return isalnum(c) || c == '_' || c >= 0x80; }
static bool letter(unsigned char c) { return (word_char(c) && !isdigit(c)); }
static bool wrap_space(char c) { return c && strchr("\t\n\v\f\r ", c); }
static bool word_punct(unsigned char c) { return word_char(c) || (c && strchr("!\"'&.,?", c)); }

/* Number of dashes at `at`, at least two, before a word. */
static size_t dashes(const char *p, size_t n, size_t at)
{
    size_t k = at;
    while (k < n && p[k] == '-')
        k++;
    return k - at >= 2 && k < n && word_char((unsigned char)p[k]) ? k - at : 0;
}

static bool hyphen_ends(const char *p, size_t n, size_t j)
{
    const unsigned char *u = (const unsigned char *)p;
    bool two = j >= 3 && letter(u[j - 2]) && letter(u[j - 3]);
    bool again = j >= 4 && letter(u[j - 2]) && u[j - 3] == '-' && letter(u[j - 4]);
    if (u[j - 1] != '-' || (!two && !again) || j >= n || !letter(u[j]))
        return false;
    return j + 1 < n && (letter(u[j + 1]) || (u[j + 1] == '-' && j + 2 < n && letter(u[j + 2])));
}

/* The end of the chunk that begins at `i`, as in Python's textwrap. */
static size_t piece_end(const char *p, size_t n, size_t i, bool hyphens)
{
    size_t j = i, dash;
    if (wrap_space(p[i])) {
        while (j < n && wrap_space(p[j]))
            j++;
        return j;
    }
    if (hyphens && i && word_punct((unsigned char)p[i - 1]) && (dash = dashes(p, n, i)))
        return i + dash;
    for (j = i + 1; j < n && !wrap_space(p[j]); j++)
        if (hyphens &&
            (hyphen_ends(p, n, j) || (word_punct((unsigned char)p[j - 1]) && dashes(p, n, j))))
            return j;
    return j;
}

struct wrapping {
    int64_t width;
    bool break_long, hyphens;
    struct val with;
};

static bool blank_piece(struct val v) { return space_prefix(v.s->p, v.s->n) == v.s->n; }

/* How much of a chunk longer than a line fits on the current one. */
static int64_t long_cut(struct vm *vm, const struct wrapping *w, struct val piece, int64_t left)
{
    if (!w->hyphens || piece.s->n_chars <= left)
        return left;
    int64_t hyphen = text_find(vm, piece, val_cstr(vm, "-"), 0, left, true);
    struct val head = hyphen > 0 ? str_slice(vm, piece, 0, hyphen) : piece;
    for (uint32_t i = 0; hyphen > 0 && i < head.s->n; i++)
        if (head.s->p[i] != '-')
            return hyphen + 1;
    return left;
}

static void wrap_line(struct vm *vm, const struct wrapping *w, struct val line, struct strbuf *out)
{
    struct list *pieces = list_new(vm, 16);
    for (size_t i = 0, j; i < line.s->n; i = j) {
        j = piece_end(line.s->p, line.s->n, i, w->hyphens);
        list_push(vm, pieces, val_str(vm, line.s->p + i, j - i));
    }
    uint32_t at = 0;
    for (bool first = true; at < pieces->n; first = false) {
        struct list *cur = list_new(vm, 8);
        int64_t len = 0;
        if (!first && blank_piece(pieces->v[at]))
            at++;
        for (; at < pieces->n && len + pieces->v[at].s->n_chars <= w->width; at++) {
            len += pieces->v[at].s->n_chars;
            list_push(vm, cur, pieces->v[at]);
        }
        if (at < pieces->n && pieces->v[at].s->n_chars > w->width) {
            struct val p = pieces->v[at];
            if (w->break_long) {
                int64_t cut = long_cut(vm, w, p, w->width - len);
                list_push(vm, cur, str_slice(vm, p, 0, cut));
                pieces->v[at] = str_slice(vm, p, cut, p.s->n_chars);
            } else if (!cur->n) {
                list_push(vm, cur, p);
                at++;
            }
        }
        if (cur->n && blank_piece(cur->v[cur->n - 1]))
            cur->n--;
        if (!cur->n)
            continue;
        if (out->n)
            sb_add(vm, out, w->with.s->p, w->with.s->n);
        struct val s = text_join(vm, val_cstr(vm, ""), cur);
        sb_add(vm, out, s.s->p, s.s->n);
    }
}

FILTER(filter_wordwrap)
{
    struct wrapping w = {arg_int(vm, a, 0, 79), arg_bool(vm, a, 1, true), arg_bool(vm, a, 3, true),
                         val_cstr(vm, "\n")};
    struct strbuf b = {0};
    if (arg_given(a, 2) && a->v[2].type != V_NONE)
        w.with = text_need(vm, a->v[2], "wrapstring");
    if (w.width <= 0)
        vm_type_error(vm, "invalid width %lld (must be > 0)", (long long)w.width);
    const struct list *lines = text_lines(vm, text_need(vm, self, "wordwrap() argument"), false);
    for (uint32_t i = 0; i < lines->n; i++) {
        struct strbuf one = {0};
        vm_work(vm, (uint64_t)lines->v[i].s->n * 64);
        wrap_line(vm, &w, lines->v[i], &one);
        if (i)
            sb_add(vm, &b, w.with.s->p, w.with.s->n);
        sb_add(vm, &b, one.p ? one.p : "", one.n);
    }
    return sb_val(vm, &b);
}

/* ---------------------------------------------------------------- pprint */

static void pretty(struct vm *vm, struct strbuf *b, struct val v, int64_t indent, int64_t behind);

/* Sorts keys if all are strings or all are numbers. */
static const struct list *sorted_keys(struct vm *vm, const struct dict *d)
{
    struct list *keys = list_new(vm, d->n);
    bool texts = true, numbers = true;
    for (uint32_t i = 0; i < d->n; i++) {
        list_push(vm, keys, d->e[i].k);
        texts &= d->e[i].k.type == V_STR;
        numbers &= val_is_number(d->e[i].k, NULL);
    }
    if (texts || numbers)
        list_sort(vm, keys->v, keys->v, keys->n, false);
    return keys;
}

static void flat(struct vm *vm, struct strbuf *b, struct val v)
{
    vm_enter(vm);
    if (v.type == V_DICT) {
        const struct list *keys = sorted_keys(vm, v.d);
        sb_ch(vm, b, '{');
        for (uint32_t i = 0; i < keys->n; i++) {
            sb_str(vm, b, i ? ", " : "");
            flat(vm, b, keys->v[i]);
            sb_str(vm, b, ": ");
            flat(vm, b, *dict_get(vm, v.d, keys->v[i]));
        }
        sb_ch(vm, b, '}');
    } else if (v.type == V_LIST || v.type == V_TUPLE) {
        sb_ch(vm, b, v.type == V_LIST ? '[' : '(');
        for (uint32_t i = 0; i < v.l->n; i++) {
            sb_str(vm, b, i ? ", " : "");
            flat(vm, b, v.l->v[i]);
        }
        sb_str(vm, b, v.type == V_LIST ? "]" : v.l->n == 1 ? ",)" : ")");
    } else {
        val_repr(vm, b, v);
    }
    vm_leave(vm);
}

static void pretty_items(struct vm *vm, struct strbuf *b, struct val v, int64_t indent,
                         int64_t behind)
{
    const struct list *l = v.type == V_DICT ? sorted_keys(vm, v.d) : v.l;
    bool dict = v.type == V_DICT, single = v.type == V_TUPLE && l->n == 1;
    sb_ch(vm, b, dict ? '{' : v.type == V_LIST ? '[' : '(');
    for (uint32_t i = 0; i < l->n; i++) {
        bool last = i + 1 == l->n;
        int64_t in = indent + 1;
        if (i) {
            sb_str(vm, b, ",\n");
            sb_fill(vm, b, ' ', in);
        }
        if (dict) {
            size_t from = b->n;
            flat(vm, b, l->v[i]);
            sb_str(vm, b, ": ");
            in += val_wrap(vm, b->p + from, b->n - from).s->n_chars;
        }
        pretty(vm, b, dict ? *dict_get(vm, v.d, l->v[i]) : l->v[i], in,
               last ? behind + 1 + single : 1);
    }
    sb_str(vm, b, dict ? "}" : v.type == V_LIST ? "]" : single ? ",)" : ")");
}

/* `indent`: leading columns; `behind`: length of the closing brackets of outer containers. */
static void pretty(struct vm *vm, struct strbuf *b, struct val v, int64_t indent, int64_t behind)
{
    enum { WIDTH = 80 };
    struct strbuf one = {0};
    vm_enter(vm);
    flat(vm, &one, v);
    struct val text = sb_val(vm, &one);
    bool items =
        (v.type == V_DICT && v.d->n) || ((v.type == V_LIST || v.type == V_TUPLE) && v.l->n);
    if (items && text.s->n_chars > WIDTH - indent - behind)
        pretty_items(vm, b, v, indent, behind);
    else
        sb_add(vm, b, text.s->p, text.s->n);
    vm_leave(vm);
}

FILTER(filter_pprint)
{
    (void)a;
    struct strbuf b = {0};
    pretty(vm, &b, self, 0, 0);
    return sb_val(vm, &b);
}
