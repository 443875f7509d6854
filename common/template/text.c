#include "common/template/text.h"
#include "common/template/space.h"
#include <string.h>
#include <utf8proc.h>

struct val text_need(struct vm *vm, struct val v, const char *what)
{
    if (v.type == V_UNDEFINED)
        vm_fail_undefined(vm, v);
    if (v.type != V_STR)
        vm_type_error(vm, "%s must be str, not %s", what, val_type(v));
    return v;
}

static struct val part(struct vm *vm, struct val s, size_t from, size_t to)
{
    return val_markup(vm, val_wrap(vm, s.s->p + from, to - from), s.s->markup);
}

/* ---------------------------------------------------------------- case */
static bool cased(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static void put_upper(struct vm *vm, struct strbuf *b, uint32_t c, bool title)
{
    static const struct {
        uint16_t c;
        const char *upper, *title;
    } special[] = {{0xdf, "SS", "Ss"},     {0x149, "ʼN", "ʼN"},    {0x1f0, "J̌", "J̌"},
                   {0xfb00, "FF", "Ff"},   {0xfb01, "FI", "Fi"},   {0xfb02, "FL", "Fl"},
                   {0xfb03, "FFI", "Ffi"}, {0xfb04, "FFL", "Ffl"}, {0xfb05, "ST", "St"},
                   {0xfb06, "ST", "St"},   {0x587, "ԵՒ", "Եւ"}};
    for (size_t i = 0; c >= 0xdf && i < sizeof(special) / sizeof(*special); i++)
        if (special[i].c == c) {
            sb_str(vm, b, title ? special[i].title : special[i].upper);
            return;
        }
    utf8proc_int32_t cp = (utf8proc_int32_t)c;
    sb_cp(vm, b, (uint32_t)(title ? utf8proc_totitle(cp) : utf8proc_toupper(cp)));
}

static void put_lower(struct vm *vm, struct strbuf *b, uint32_t c, bool word_end)
{
    if (c == 0x3a3 && word_end) /* final sigma */
        c = 0x3c2;
    if (c == 0x130)
        sb_str(vm, b, "i\xcc\x87");
    else
        sb_cp(vm, b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

struct val text_case(struct vm *vm, struct val v, enum text_case how)
{
    const struct str *s = v.s;
    struct strbuf b = {0};
    bool in_word = false;
    sb_reserve(vm, &b, s->n);
    vm_work(vm, (uint64_t)s->n * 4);
    for (size_t i = 0, len, n_len; i < s->n; i += len) {
        uint32_t c = utf8_decode(s->p + i, s->n - i, &len);
        bool up = how == CASE_UPPER;
        if (how == CASE_SWAP)
            up = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LL;
        else if (how == CASE_TITLE)
            up = !in_word;
        else if (how == CASE_CAPITALIZE)
            up = i == 0;
        bool end = c == 0x3a3 && in_word &&
                   (i + len >= s->n || !cased(utf8_decode(s->p + i + len, s->n - i - len, &n_len)));
        in_word = cased(c);
        if (how == CASE_FOLD && (c == 0xdf || c == 0x1e9e))
            sb_str(vm, &b, "ss");
        else if (up)
            put_upper(vm, &b, c, how == CASE_TITLE || how == CASE_CAPITALIZE);
        else
            put_lower(vm, &b, c, end);
    }
    return val_markup(vm, sb_val(vm, &b), s->markup);
}

bool text_is_cased(struct vm *vm, struct val v, enum text_case how)
{
    bool any = false;
    vm_work(vm, (uint64_t)v.s->n * 4);
    for (size_t i = 0, len; i < v.s->n; i += len) {
        uint32_t c = utf8_decode(v.s->p + i, v.s->n - i, &len);
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
        bool lower = k == UTF8PROC_CATEGORY_LL, upper = k == UTF8PROC_CATEGORY_LU;
        if (how == CASE_LOWER ? upper || k == UTF8PROC_CATEGORY_LT
                              : lower || k == UTF8PROC_CATEGORY_LT)
            return false;
        any |= how == CASE_LOWER ? lower : upper;
    }
    return any;
}

/* ---------------------------------------------------------------- trim */
static bool in_set(const struct str *chars, uint32_t c)
{
    for (size_t i = 0, len; i < chars->n; i += len)
        if (utf8_decode(chars->p + i, chars->n - i, &len) == c)
            return true;
    return false;
}

struct val text_trim(struct vm *vm, struct val v, struct val chars, int ends)
{
    const struct str *s = v.s;
    size_t from = 0, to = s->n, len;
    const struct str *set = NULL;
    if (chars.type != V_NONE && chars.type != V_MISSING)
        set = text_need(vm, chars, "strip arg").s;
    while ((ends & TRIM_LEFT) && from < to) {
        uint32_t c = utf8_decode(s->p + from, to - from, &len);
        if (!(set ? in_set(set, c) : is_space(c)))
            break;
        from += len;
        vm_work(vm, set ? set->n : 1);
    }
    while ((ends & TRIM_RIGHT) && to > from) {
        size_t k = utf8_back(s->p + from, to - from);
        uint32_t c = utf8_decode(s->p + to - k, k, &len);
        if (!(set ? in_set(set, c) : is_space(c)))
            break;
        to -= k;
        vm_work(vm, set ? set->n : 1);
    }
    vm_work(vm, s->n);
    return part(vm, v, from, to);
}

/* ---------------------------------------------------------------- search */
struct val text_replace(struct vm *vm, struct val s, struct val old, struct val with, int64_t count)
{
    struct strbuf b = {0};
    const char *p = s.s->p, *end = p + s.s->n;
    vm_work(vm, (uint64_t)s.s->n * 2);
    for (; count != 0; count--) {
        const char *hit = p <= end ? memmem(p, (size_t)(end - p), old.s->p, old.s->n) : NULL;
        size_t len;
        if (!hit)
            break;
        vm_charge(vm, 1);
        sb_add(vm, &b, p, (size_t)(hit - p));
        sb_add(vm, &b, with.s->p, with.s->n);
        p = hit + old.s->n;
        if (!old.s->n) { /* between all characters */
            if (p == end) {
                p++;
                break;
            }
            utf8_decode(p, (size_t)(end - p), &len);
            sb_add(vm, &b, p, len);
            p += len;
        }
    }
    if (p < end)
        sb_add(vm, &b, p, (size_t)(end - p));
    return val_markup(vm, sb_val(vm, &b), s.s->markup);
}

static int64_t clamp(int64_t i, int64_t n)
{
    if (i < 0)
        i += n;
    return i < 0 ? 0 : i;
}

int64_t text_find(struct vm *vm, struct val s, struct val sub, int64_t from, int64_t to, bool last)
{
    int64_t n = s.s->n_chars;
    from = clamp(from, n);
    to = clamp(to, n);
    if (to > n)
        to = n;
    if (from > to)
        return -1;
    size_t a = str_byte_at(vm, s.s, (uint32_t)from), b = str_byte_at(vm, s.s, (uint32_t)to);
    const char *p = s.s->p + a, *hit = memmem(p, b - a, sub.s->p, sub.s->n);
    vm_work(vm, (b - a) * 2);
    if (!hit)
        return -1;
    if (last && !sub.s->n)
        return to;
    if (last) /* the first match was cheap; now search from the end, charging every comparison */
        for (const char *q = s.s->p + b - sub.s->n; q > hit; q--) {
            vm_work(vm, sub.s->n);
            if (*q == *sub.s->p && !memcmp(q, sub.s->p, sub.s->n)) {
                hit = q;
                break;
            }
        }
    return from + (int64_t)utf8_count(p, (size_t)(hit - p));
}

int64_t text_count(struct vm *vm, struct val s, struct val sub)
{
    const char *p = s.s->p, *end = p + s.s->n;
    int64_t n = 0;
    if (!sub.s->n)
        return s.s->n_chars + 1;
    vm_work(vm, (uint64_t)s.s->n * 2);
    while ((p = memmem(p, (size_t)(end - p), sub.s->p, sub.s->n))) {
        vm_charge(vm, 1);
        p += sub.s->n;
        n++;
    }
    return n;
}

/* ---------------------------------------------------------------- split, join */
static void split_words(struct vm *vm, struct val s, int64_t max, struct list *l)
{
    const char *p = s.s->p;
    size_t n = s.s->n, i = space_prefix(p, n), len;
    while (i < n) {
        size_t from = i;
        if (max-- == 0) {
            list_push(vm, l, part(vm, s, from, n));
            return;
        }
        while (i < n && !is_space(utf8_decode(p + i, n - i, &len)))
            i += len;
        list_push(vm, l, part(vm, s, from, i));
        i += space_prefix(p + i, n - i);
    }
}

struct list *text_split(struct vm *vm, struct val s, struct val sep, int64_t max)
{
    struct list *l = list_new(vm, 0);
    vm_work(vm, (uint64_t)s.s->n * 2);
    if (sep.type == V_NONE || sep.type == V_MISSING) {
        split_words(vm, s, max, l);
        return l;
    }
    text_need(vm, sep, "sep");
    if (!sep.s->n)
        vm_type_error(vm, "empty separator");
    size_t from = 0;
    for (; max != 0; max--) {
        const char *hit = memmem(s.s->p + from, s.s->n - from, sep.s->p, sep.s->n);
        if (!hit)
            break;
        list_push(vm, l, part(vm, s, from, (size_t)(hit - s.s->p)));
        from = (size_t)(hit - s.s->p) + sep.s->n;
    }
    list_push(vm, l, part(vm, s, from, s.s->n));
    return l;
}

static void reverse(struct list *l)
{
    for (uint32_t i = 0; i + 1 < l->n - i; i++) {
        struct val t = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = t;
    }
}

static void rsplit_words(struct vm *vm, struct val s, int64_t max, struct list *l)
{
    const char *p = s.s->p;
    size_t n = trimmed_len(p, s.s->n), len;
    while (n) {
        size_t from = n;
        if (max-- == 0) {
            list_push(vm, l, part(vm, s, 0, n));
            return;
        }
        while (from) {
            size_t k = utf8_back(p, from);
            if (is_space(utf8_decode(p + from - k, k, &len)))
                break;
            from -= k;
        }
        list_push(vm, l, part(vm, s, from, n));
        n = trimmed_len(p, from);
    }
}

struct list *text_rsplit(struct vm *vm, struct val s, struct val sep, int64_t max)
{
    if (max < 0)
        return text_split(vm, s, sep, max);
    struct list *l = list_new(vm, 0);
    vm_work(vm, (uint64_t)s.s->n * 2);
    if (sep.type == V_NONE || sep.type == V_MISSING) {
        rsplit_words(vm, s, max, l);
        reverse(l);
        return l;
    }
    text_need(vm, sep, "sep");
    if (!sep.s->n)
        vm_type_error(vm, "empty separator");
    size_t to = s.s->n, n = sep.s->n;
    for (size_t i = to; max > 0 && i >= n; i--) {
        if (i > to)
            continue;
        vm_work(vm, n);
        if (!memcmp(s.s->p + i - n, sep.s->p, n)) {
            list_push(vm, l, part(vm, s, i, to));
            to = i - n;
            max--;
            i = to + 1;
        }
    }
    list_push(vm, l, part(vm, s, 0, to));
    reverse(l);
    return l;
}

struct list *text_lines(struct vm *vm, struct val s, bool keep_ends)
{
    struct list *l = list_new(vm, 0);
    size_t from = 0, len;
    vm_work(vm, (uint64_t)s.s->n * 2);
    for (size_t i = 0; i < s.s->n;) {
        uint32_t c = utf8_decode(s.s->p + i, s.s->n - i, &len);
        size_t end = i;
        i += len;
        if (!((c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 ||
              c == 0x2029))
            continue;
        if (c == '\r' && i < s.s->n && s.s->p[i] == '\n')
            i++;
        list_push(vm, l, part(vm, s, from, keep_ends ? i : end));
        from = i;
    }
    if (from < s.s->n)
        list_push(vm, l, part(vm, s, from, s.s->n));
    return l;
}

struct val text_join(struct vm *vm, struct val sep, const struct list *parts)
{
    struct strbuf b = {0};
    for (uint32_t i = 0; i < parts->n; i++) {
        if (parts->v[i].type != V_STR)
            vm_type_error(vm, "sequence item %u: expected str instance, %s found", i,
                          val_type(parts->v[i]));
        if (i)
            sb_add(vm, &b, sep.s->p, sep.s->n);
        struct val p = sep.s->markup ? html_escape(vm, parts->v[i]) : parts->v[i];
        sb_add(vm, &b, p.s->p, p.s->n);
    }
    return val_markup(vm, sb_val(vm, &b), sep.s->markup);
}

struct val html_escape(struct vm *vm, struct val v)
{
    if (v.type == V_STR && v.s->markup)
        return v;
    struct val s = val_to_str(vm, v);
    struct strbuf b = {0};
    for (uint32_t i = 0; i < s.s->n; i++) {
        char c = s.s->p[i];
        if (c == '&')
            sb_str(vm, &b, "&amp;");
        else if (c == '<')
            sb_str(vm, &b, "&lt;");
        else if (c == '>')
            sb_str(vm, &b, "&gt;");
        else if (c == '\'')
            sb_str(vm, &b, "&#39;");
        else if (c == '"')
            sb_str(vm, &b, "&#34;");
        else
            sb_ch(vm, &b, c);
    }
    vm_work(vm, s.s->n);
    return val_markup(vm, sb_val(vm, &b), true);
}
