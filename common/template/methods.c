/* methods.c - methods of Python's str, list, tuple and dict, and of Jinja's helpers. */
#include "common/template/eval.h"
#include "common/template/text.h"
#include "common/utf8.h"
#include <string.h>
#include <utf8proc.h>

#define METHOD(name) static struct val name(struct vm *vm, struct val self, const struct args *a)
#define UNUSED       (void)vm, (void)self, (void)a

/* ---------------------------------------------------------------- str: whole strings */
METHOD(m_upper) { return UNUSED, text_case(vm, self, CASE_UPPER); }
METHOD(m_lower) { return UNUSED, text_case(vm, self, CASE_LOWER); }
METHOD(m_title) { return UNUSED, text_case(vm, self, CASE_TITLE); }
METHOD(m_capitalize) { return UNUSED, text_case(vm, self, CASE_CAPITALIZE); }
METHOD(m_casefold) { return UNUSED, text_case(vm, self, CASE_FOLD); }
METHOD(m_swapcase) { return UNUSED, text_case(vm, self, CASE_SWAP); }
METHOD(m_strip) { return text_trim(vm, self, a->v[0], TRIM_BOTH); }
METHOD(m_lstrip) { return text_trim(vm, self, a->v[0], TRIM_LEFT); }
METHOD(m_rstrip) { return text_trim(vm, self, a->v[0], TRIM_RIGHT); }
METHOD(m_format) { return str_format(vm, self, a); }

METHOD(m_format_map)
{
    struct args kw = {0};
    if (a->v[0].type != V_DICT)
        vm_type_error(vm, "format_map() wants a mapping");
    kw.kw = VM_NEW(vm, struct kwarg, a->v[0].d->n);
    for (uint32_t i = 0; i < a->v[0].d->n; i++)
        if (a->v[0].d->e[i].k.type == V_STR)
            kw.kw[kw.n_kw++] = (struct kwarg){a->v[0].d->e[i].k, a->v[0].d->e[i].v};
    return str_format(vm, self, &kw);
}

METHOD(m_replace)
{
    struct val old = text_need(vm, a->v[0], "replace() argument 1");
    struct val with = text_need(vm, a->v[1], "replace() argument 2");
    if (self.s->markup)
        with = html_escape(vm, with);
    return text_replace(vm, self, old, with, arg_int(vm, a, 2, -1));
}

METHOD(m_removeprefix)
{
    const struct str *p = text_need(vm, a->v[0], "removeprefix() argument").s;
    bool has = p->n <= self.s->n && !memcmp(self.s->p, p->p, p->n);
    return has ? str_slice(vm, self, p->n_chars, self.s->n_chars) : self;
}

METHOD(m_removesuffix)
{
    const struct str *p = text_need(vm, a->v[0], "removesuffix() argument").s;
    bool has = p->n && p->n <= self.s->n && !memcmp(self.s->p + self.s->n - p->n, p->p, p->n);
    return has ? str_slice(vm, self, 0, self.s->n_chars - p->n_chars) : self;
}

/* center, ljust, rjust: `left` is the padding before */
static struct val padded(struct vm *vm, struct val self, const struct args *a, int64_t left,
                         int64_t total)
{
    struct strbuf b = {0};
    size_t len = 1;
    uint32_t fill = ' ';
    if (arg_given(a, 1)) {
        struct val f = text_need(vm, a->v[1], "The fill character");
        if (f.s->n_chars != 1)
            vm_type_error(vm, "The fill character must be exactly one character long");
        fill = utf8_decode(f.s->p, f.s->n, &len);
    }
    sb_fill(vm, &b, fill, left);
    sb_add(vm, &b, self.s->p, self.s->n);
    sb_fill(vm, &b, fill, total - left);
    return sb_val(vm, &b);
}

METHOD(m_center)
{
    int64_t width = arg_int(vm, a, 0, 0), total = width - self.s->n_chars;
    if (total <= 0)
        return self;
    return padded(vm, self, a, total / 2 + (total & width & 1), total);
}

METHOD(m_ljust)
{
    int64_t total = arg_int(vm, a, 0, 0) - self.s->n_chars;
    return total <= 0 ? self : padded(vm, self, a, 0, total);
}

METHOD(m_rjust)
{
    int64_t total = arg_int(vm, a, 0, 0) - self.s->n_chars;
    return total <= 0 ? self : padded(vm, self, a, total, total);
}

METHOD(m_zfill)
{
    int64_t total = arg_int(vm, a, 0, 0) - self.s->n_chars;
    struct strbuf b = {0};
    bool sign = self.s->n && (*self.s->p == '-' || *self.s->p == '+');
    if (total <= 0)
        return self;
    sb_add(vm, &b, self.s->p, sign);
    sb_fill(vm, &b, '0', total);
    sb_add(vm, &b, self.s->p + sign, self.s->n - sign);
    return sb_val(vm, &b);
}

METHOD(m_expandtabs)
{
    struct strbuf b = {0};
    int64_t tab = arg_int(vm, a, 0, 8), col = 0;
    for (uint32_t i = 0; i < self.s->n; i++) {
        char c = self.s->p[i];
        if (c == '\t') {
            int64_t fill = tab > 0 ? tab - col % tab : 0;
            sb_fill(vm, &b, ' ', fill);
            col += fill;
        } else {
            sb_ch(vm, &b, c);
            col = c == '\n' || c == '\r' ? 0 : col + ((c & 0xc0) != 0x80);
        }
    }
    return sb_val(vm, &b);
}

/* ---------------------------------------------------------------- str: searching */
static int64_t find(struct vm *vm, struct val self, const struct args *a, const char *name,
                    bool last)
{
    struct val sub = text_need(vm, a->v[0], name);
    for (int i = 1; i < 3; i++)
        if (a->v[i].type == V_NONE)
            a->v[i] = MISSING;
    return text_find(vm, self, sub, arg_int(vm, a, 1, 0), arg_int(vm, a, 2, INT32_MAX), last);
}

METHOD(m_find) { return val_int(find(vm, self, a, "find() argument 1", false)); }
METHOD(m_rfind) { return val_int(find(vm, self, a, "rfind() argument 1", true)); }

static struct val found(struct vm *vm, int64_t i)
{
    if (i < 0)
        vm_type_error(vm, "substring not found");
    return val_int(i);
}

METHOD(m_index) { return found(vm, find(vm, self, a, "index() argument 1", false)); }
METHOD(m_rindex) { return found(vm, find(vm, self, a, "rindex() argument 1", true)); }

static struct val window(struct vm *vm, struct val self, const struct args *a)
{
    struct val none = NONE_VALUE;
    if (!arg_given(a, 1))
        return self;
    return vm_slice(vm, self, a->v[1], arg_given(a, 2) ? a->v[2] : none, none);
}

METHOD(m_count)
{
    struct val sub = text_need(vm, a->v[0], "count() argument 1");
    return val_int(text_count(vm, window(vm, self, a), sub));
}

static bool has_end(struct vm *vm, struct val s, struct val affix, bool start, const char *name)
{
    if (affix.type == V_UNDEFINED)
        vm_fail_undefined(vm, affix);
    if (affix.type == V_TUPLE) {
        for (uint32_t i = 0; i < affix.l->n; i++)
            if (has_end(vm, s, text_need(vm, affix.l->v[i], "tuple item"), start, name))
                return true;
        return false;
    }
    if (affix.type != V_STR)
        vm_type_error(vm, "%s first arg must be str or a tuple of str, not %s", name,
                      val_type(affix));
    vm_work(vm, affix.s->n);
    return affix.s->n <= s.s->n &&
           !memcmp(start ? s.s->p : s.s->p + s.s->n - affix.s->n, affix.s->p, affix.s->n);
}

METHOD(m_startswith)
{
    return val_bool(has_end(vm, window(vm, self, a), a->v[0], true, "startswith"));
}

METHOD(m_endswith)
{
    return val_bool(has_end(vm, window(vm, self, a), a->v[0], false, "endswith"));
}

/* ---------------------------------------------------------------- str: in pieces */
METHOD(m_split) { return val_list(V_LIST, text_split(vm, self, a->v[0], arg_int(vm, a, 1, -1))); }

METHOD(m_rsplit) { return val_list(V_LIST, text_rsplit(vm, self, a->v[0], arg_int(vm, a, 1, -1))); }

METHOD(m_splitlines) { return val_list(V_LIST, text_lines(vm, self, arg_bool(vm, a, 0, false))); }

METHOD(m_join)
{
    if (!val_iterable(a->v[0]))
        vm_type_error(vm, "can only join an iterable");
    return text_join(vm, self, val_items(vm, a->v[0]));
}

static struct val partition(struct vm *vm, struct val self, struct val sep, bool last)
{
    text_need(vm, sep, "partition() argument");
    if (!sep.s->n)
        vm_type_error(vm, "empty separator");
    int64_t at = text_find(vm, self, sep, 0, INT32_MAX, last);
    struct list *l = list_new(vm, 3);
    struct val none = str_slice(vm, self, 0, 0);
    if (at < 0 && last)
        list_push(vm, l, none);
    list_push(vm, l, at < 0 && last ? none : at < 0 ? self : str_slice(vm, self, 0, at));
    list_push(vm, l, at < 0 ? (last ? self : none) : sep);
    if (at >= 0 || !last)
        list_push(vm, l, at < 0 ? none : str_slice(vm, self, at + sep.s->n_chars, self.s->n_chars));
    return val_list(V_TUPLE, l);
}

METHOD(m_partition) { return partition(vm, self, a->v[0], false); }
METHOD(m_rpartition) { return partition(vm, self, a->v[0], true); }

/* ---------------------------------------------------------------- str: questions */
enum question { IS_ALPHA, IS_DIGIT, IS_DECIMAL, IS_NUMERIC, IS_ALNUM, IS_SPACE, IS_PRINTABLE };

static bool answers(uint32_t c, enum question q)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    bool letter = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
    bool super = c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0x2070 && c <= 0x2089);
    switch (q) {
    case IS_ALPHA:
        return letter;
    case IS_DECIMAL:
        return k == UTF8PROC_CATEGORY_ND;
    case IS_DIGIT:
        return k == UTF8PROC_CATEGORY_ND || (super && k == UTF8PROC_CATEGORY_NO);
    case IS_NUMERIC:
        return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
    case IS_ALNUM:
        return letter || (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
    case IS_SPACE:
        return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL ||
               k == UTF8PROC_CATEGORY_ZP || (c >= 9 && c <= 13) || (c >= 28 && c <= 31) ||
               c == 0x85;
    default:
        return c == ' ' || !(k >= UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_CN);
    }
}

static struct val all(struct vm *vm, struct val self, enum question q, bool empty)
{
    vm_work(vm, (uint64_t)self.s->n * 4);
    for (size_t i = 0, len; i < self.s->n; i += len)
        if (!answers(utf8_decode(self.s->p + i, self.s->n - i, &len), q))
            return val_bool(false);
    return val_bool(self.s->n ? true : empty);
}

METHOD(m_isalpha) { return UNUSED, all(vm, self, IS_ALPHA, false); }
METHOD(m_isdigit) { return UNUSED, all(vm, self, IS_DIGIT, false); }
METHOD(m_isdecimal) { return UNUSED, all(vm, self, IS_DECIMAL, false); }
METHOD(m_isnumeric) { return UNUSED, all(vm, self, IS_NUMERIC, false); }
METHOD(m_isalnum) { return UNUSED, all(vm, self, IS_ALNUM, false); }
METHOD(m_isspace) { return UNUSED, all(vm, self, IS_SPACE, false); }
METHOD(m_isprintable) { return UNUSED, all(vm, self, IS_PRINTABLE, true); }
METHOD(m_isascii) { return UNUSED, val_bool(self.s->n == self.s->n_chars); }
METHOD(m_islower) { return UNUSED, val_bool(text_is_cased(vm, self, CASE_LOWER)); }
METHOD(m_isupper) { return UNUSED, val_bool(text_is_cased(vm, self, CASE_UPPER)); }

METHOD(m_istitle)
{
    UNUSED;
    struct val t = text_case(vm, self, CASE_TITLE);
    bool any = text_is_cased(vm, text_case(vm, self, CASE_UPPER), CASE_UPPER);
    return val_bool(any && val_eq(vm, t, self));
}

/* ---------------------------------------------------------------- list, tuple, range */
METHOD(m_seq_count)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < self.l->n; i++)
        n += val_eq(vm, self.l->v[i], a->v[0]);
    return val_int(n);
}

METHOD(m_seq_index)
{
    for (uint32_t i = 0; i < self.l->n; i++)
        if (val_eq(vm, self.l->v[i], a->v[0]))
            return val_int(i);
    vm_type_error(vm, "%s is not in %s", val_repr_c(vm, a->v[0]), val_type(self));
}

METHOD(m_seq_copy)
{
    UNUSED;
    struct list *l = list_new(vm, self.l->n);
    for (uint32_t i = 0; i < self.l->n; i++)
        list_push(vm, l, self.l->v[i]);
    return val_list(V_LIST, l);
}

/* ---------------------------------------------------------------- dict */
METHOD(m_get)
{
    const struct val *v = dict_get(vm, self.d, a->v[0]);
    return v ? *v : arg_given(a, 1) ? a->v[1] : NONE_VALUE;
}

static struct val view(struct vm *vm, struct val self, const char *kind)
{
    struct list *l = list_new(vm, self.d->n);
    l->view = kind;
    for (uint32_t i = 0; i < self.d->n; i++) {
        const struct entry *e = &self.d->e[i];
        list_push(vm, l, kind[5] == 'k' ? e->k : kind[5] == 'v' ? e->v : val_pair(vm, e->k, e->v));
    }
    return val_list(V_VIEW, l);
}

METHOD(m_keys) { return UNUSED, view(vm, self, "dict_keys"); }
METHOD(m_values) { return UNUSED, view(vm, self, "dict_values"); }
METHOD(m_items) { return UNUSED, view(vm, self, "dict_items"); }

METHOD(m_dict_copy)
{
    UNUSED;
    struct dict *d = dict_new(vm);
    for (uint32_t i = 0; i < self.d->n; i++)
        dict_set(vm, d, self.d->e[i].k, self.d->e[i].v);
    return val_dict(d);
}

/* ---------------------------------------------------------------- loop, cycler */
METHOD(m_loop_cycle)
{
    struct val index = vm_attr(vm, self, "index0", 6);
    if (!a->n)
        vm_type_error(vm, "no items for cycling given");
    return a->v[(uint64_t)index.i % a->n];
}

METHOD(m_cycler_next)
{
    UNUSED;
    struct cycler *c = self.cycler;
    struct val v = c->v->v[c->at];
    c->at = (c->at + 1) % c->v->n;
    return v;
}

METHOD(m_cycler_reset)
{
    UNUSED;
    self.cycler->at = 0;
    return NONE_VALUE;
}

/* ---------------------------------------------------------------- tables */
static const struct builtin str_methods[] = {
    {"upper", m_upper, ""},
    {"lower", m_lower, ""},
    {"casefold", m_casefold, ""},
    {"title", m_title, ""},
    {"capitalize", m_capitalize, ""},
    {"swapcase", m_swapcase, ""},
    {"strip", m_strip, "chars?"},
    {"lstrip", m_lstrip, "chars?"},
    {"rstrip", m_rstrip, "chars?"},
    {"split", m_split, "sep? maxsplit?"},
    {"rsplit", m_rsplit, "sep? maxsplit?"},
    {"splitlines", m_splitlines, "keepends?"},
    {"join", m_join, "iterable"},
    {"partition", m_partition, "sep"},
    {"rpartition", m_rpartition, "sep"},
    {"replace", m_replace, "old new count?"},
    {"startswith", m_startswith, "prefix start? end?"},
    {"endswith", m_endswith, "suffix start? end?"},
    {"removeprefix", m_removeprefix, "prefix"},
    {"removesuffix", m_removesuffix, "suffix"},
    {"find", m_find, "sub start? end?"},
    {"rfind", m_rfind, "sub start? end?"},
    {"index", m_index, "sub start? end?"},
    {"rindex", m_rindex, "sub start? end?"},
    {"count", m_count, "sub start? end?"},
    {"format", m_format, NULL},
    {"format_map", m_format_map, "mapping"},
    {"center", m_center, "width fillchar?"},
    {"ljust", m_ljust, "width fillchar?"},
    {"rjust", m_rjust, "width fillchar?"},
    {"zfill", m_zfill, "width"},
    {"expandtabs", m_expandtabs, "tabsize?"},
    {"isalpha", m_isalpha, ""},
    {"isdigit", m_isdigit, ""},
    {"isdecimal", m_isdecimal, ""},
    {"isnumeric", m_isnumeric, ""},
    {"isalnum", m_isalnum, ""},
    {"isspace", m_isspace, ""},
    {"isprintable", m_isprintable, ""},
    {"isascii", m_isascii, ""},
    {"islower", m_islower, ""},
    {"isupper", m_isupper, ""},
    {"istitle", m_istitle, ""},
};
static const struct builtin list_methods[] = {
    {"index", m_seq_index, "value"},
    {"count", m_seq_count, "value"},
    {"copy", m_seq_copy, ""},
};
static const struct builtin tuple_methods[] = {
    {"index", m_seq_index, "value"},
    {"count", m_seq_count, "value"},
};
static const struct builtin dict_methods[] = {
    {"get", m_get, "key default?"}, {"keys", m_keys, ""},      {"values", m_values, ""},
    {"items", m_items, ""},         {"copy", m_dict_copy, ""},
};
static const struct builtin loop_methods[] = {
    {"cycle", m_loop_cycle, NULL},
    {"changed", loop_changed, NULL},
};
static const struct builtin cycler_methods[] = {
    {"next", m_cycler_next, ""},
    {"reset", m_cycler_reset, ""},
};

#define TABLE(rows)                                                                                \
    {                                                                                              \
        rows, sizeof(rows) / sizeof(*(rows))                                                       \
    }
static const struct {
    const struct builtin *rows;
    size_t n;
} tables[] = {
    [V_STR] = TABLE(str_methods),       [V_LIST] = TABLE(list_methods),
    [V_TUPLE] = TABLE(tuple_methods),   [V_RANGE] = TABLE(tuple_methods),
    [V_DICT] = TABLE(dict_methods),     [V_LOOP] = TABLE(loop_methods),
    [V_CYCLER] = TABLE(cycler_methods),
};

const struct builtin *method_find(struct val self, const char *name, size_t n)
{
    if (self.type >= sizeof(tables) / sizeof(*tables))
        return NULL;
    return builtin_find(tables[self.type].rows, tables[self.type].n, name, n);
}

bool method_mutates(struct val self, const char *name, size_t n)
{
    static const char *const of_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *names = self.type == V_LIST ? of_list : self.type == V_DICT ? of_dict : NULL;
    for (; names && *names; names++)
        if (strlen(*names) == n && !memcmp(*names, name, n))
            return true;
    return false;
}
