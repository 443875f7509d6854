/* Filters of strings and numbers. */
#include "common/template/bigint.h"
#include "common/template/filters.h"
#include "common/template/space.h"
#include "common/template/text.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---------------------------------------------------------------- case and space */
FILTER(filter_upper) { return (void)a, text_case(vm, val_to_str(vm, self), CASE_UPPER); }
FILTER(filter_lower) { return (void)a, text_case(vm, val_to_str(vm, self), CASE_LOWER); }
FILTER(filter_capitalize) { return (void)a, text_case(vm, val_to_str(vm, self), CASE_CAPITALIZE); }
FILTER(filter_trim) { return text_trim(vm, val_to_str(vm, self), a->v[0], TRIM_BOTH); }
FILTER(filter_string) { return (void)a, val_to_str(vm, self); }
FILTER(filter_safe) { return (void)a, val_markup(vm, val_to_str(vm, self), true); }
FILTER(filter_escape) { return (void)a, html_escape(vm, self); }
FILTER(filter_forceescape)
{
    return (void)a, html_escape(vm, val_markup(vm, val_to_str(vm, self), false));
}

FILTER(filter_title) /* words begin after white space and - ( { [ < */
{
    (void)a;
    struct val s = val_to_str(vm, self);
    struct strbuf b = {0};
    size_t from = 0, len;
    for (size_t i = 0; i <= s.s->n; i += len) {
        uint32_t c = ' ';
        len = 1;
        if (i < s.s->n)
            c = utf8_decode(s.s->p + i, s.s->n - i, &len);
        if (i < s.s->n && !is_space(c) && (c >= 0x80 || !strchr("-({[<", (int)c) || !c))
            continue;
        struct val word = val_wrap(vm, s.s->p + from, i - from);
        if (word.s->n) {
            struct val head = text_case(vm, str_slice(vm, word, 0, 1), CASE_UPPER);
            struct val rest = text_case(vm, str_slice(vm, word, 1, word.s->n_chars), CASE_LOWER);
            sb_add(vm, &b, head.s->p, head.s->n);
            sb_add(vm, &b, rest.s->p, rest.s->n);
        }
        if (i < s.s->n)
            sb_add(vm, &b, s.s->p + i, len);
        from = i + len;
    }
    return sb_val(vm, &b);
}

FILTER(filter_center)
{
    struct val s = val_to_str(vm, self);
    struct strbuf b = {0};
    int64_t width = arg_int(vm, a, 0, 80), total = width - s.s->n_chars;
    int64_t left = total > 0 ? total / 2 + (total & width & 1) : 0;
    sb_fill(vm, &b, ' ', left);
    sb_add(vm, &b, s.s->p, s.s->n);
    sb_fill(vm, &b, ' ', total - left);
    return sb_val(vm, &b);
}

FILTER(filter_replace)
{
    int64_t count = -1;
    if (arg_given(a, 2) && a->v[2].type != V_NONE)
        count = arg_int(vm, a, 2, -1);
    return text_replace(vm, val_markup(vm, val_to_str(vm, self), false), val_to_str(vm, a->v[0]),
                        val_to_str(vm, a->v[1]), count);
}

FILTER(filter_indent)
{
    struct strbuf pad = {0}, b = {0};
    struct val s = text_need(vm, self, "indent() argument");
    if (arg_given(a, 0) && a->v[0].type == V_STR)
        sb_add(vm, &pad, a->v[0].s->p, a->v[0].s->n);
    else
        sb_fill(vm, &pad, ' ', arg_int(vm, a, 0, 4));
    bool first = arg_bool(vm, a, 1, false), blank = arg_bool(vm, a, 2, false);
    struct strbuf with_end = {0};
    sb_add(vm, &with_end, s.s->p, s.s->n);
    sb_ch(vm, &with_end, '\n');
    const struct list *lines = text_lines(vm, sb_val(vm, &with_end), false);
    if (first)
        sb_add(vm, &b, pad.p, pad.n);
    for (uint32_t i = 0; i < lines->n; i++) {
        if (i)
            sb_ch(vm, &b, '\n');
        if (i && (blank || lines->v[i].s->n))
            sb_add(vm, &b, pad.p, pad.n);
        sb_add(vm, &b, lines->v[i].s->p, lines->v[i].s->n);
    }
    return val_markup(vm, sb_val(vm, &b), s.s->markup);
}

FILTER(filter_truncate)
{
    struct val end = arg_given(a, 2) ? text_need(vm, a->v[2], "end") : val_cstr(vm, "...");
    int64_t length = arg_int(vm, a, 0, 255), leeway = 5;
    if (arg_given(a, 3) && a->v[3].type != V_NONE)
        leeway = arg_int(vm, a, 3, 5);
    if (length < end.s->n_chars)
        vm_type_error(vm, "expected length >= %u, got %lld", end.s->n_chars, (long long)length);
    if (leeway < 0)
        vm_type_error(vm, "expected leeway >= 0, got %lld", (long long)leeway);
    int64_t n = val_length(vm, self);
    if (n <= length || n - length <= leeway)
        return self;
    struct val s = text_need(vm, self, "truncate() argument");
    struct val cut = str_slice(vm, s, 0, length - end.s->n_chars);
    if (!arg_bool(vm, a, 1, false))
        cut = text_rsplit(vm, cut, val_cstr(vm, " "), 1)->v[0];
    return op_add(vm, cut, end);
}

FILTER(filter_format)
{
    struct val args;
    if (a->n && a->n_kw)
        vm_type_error(vm, "can't handle positional and keyword arguments at the same time");
    if (a->n_kw) {
        struct dict *d = dict_new(vm);
        for (uint32_t i = 0; i < a->n_kw; i++)
            dict_set(vm, d, a->kw[i].name, a->kw[i].v);
        args = val_dict(d);
    } else {
        struct list *l = list_new(vm, a->n);
        for (uint32_t i = 0; i < a->n; i++)
            list_push(vm, l, a->v[i]);
        args = val_list(V_TUPLE, l);
    }
    return percent_format(vm, val_to_str(vm, self), args);
}

FILTER(filter_wordcount)
{
    (void)a;
    struct val s = val_to_str(vm, self);
    int64_t n = 0;
    bool in_word = false;
    vm_work(vm, (uint64_t)s.s->n * 4);
    for (size_t i = 0, len; i < s.s->n; i += len) {
        uint32_t c = utf8_decode(s.s->p + i, s.s->n - i, &len);
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
        bool word = c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
                    (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
        n += word && !in_word;
        in_word = word;
    }
    return val_int(n);
}

/* `query`: a name or value in a query string, where a blank becomes a plus and a slash is
 * escaped. */
static void quote(struct vm *vm, struct strbuf *b, struct val v, bool query)
{
    struct val s = val_to_str(vm, v);
    for (uint32_t i = 0; i < s.s->n; i++) {
        unsigned char c = (unsigned char)s.s->p[i];
        if (isalnum(c) || (c && strchr("_.-~", c)) || (c == '/' && !query))
            sb_ch(vm, b, (char)c);
        else if (c == ' ' && query)
            sb_ch(vm, b, '+');
        else
            sb_fmt(vm, b, "%%%02X", c);
    }
}

FILTER(filter_urlencode)
{
    (void)a;
    struct strbuf b = {0};
    struct val pairs = self;
    if (self.type == V_DICT)
        pairs = filter_items(vm, self, a);
    if (self.type == V_STR || !val_iterable(self)) {
        quote(vm, &b, self, false);
        return sb_val(vm, &b);
    }
    const struct list *l = val_items(vm, pairs);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct list *kv = val_items(vm, l->v[i]);
        if (kv->n != 2)
            vm_type_error(vm, "not enough values to unpack (expected 2, got %u)", kv->n);
        if (i)
            sb_ch(vm, &b, '&');
        quote(vm, &b, kv->v[0], true);
        sb_ch(vm, &b, '=');
        quote(vm, &b, kv->v[1], true);
    }
    return sb_val(vm, &b);
}

/* ---------------------------------------------------------------- numbers */
FILTER(filter_abs)
{
    int64_t i;
    (void)a;
    if (val_as_int(self, &i))
        return i < 0 ? op_neg(vm, self, true) : val_int(i);
    if (self.type == V_FLOAT)
        return val_float(fabs(self.f));
    if (self.type == V_UNDEFINED)
        vm_fail_undefined(vm, self);
    if (self.type == V_BIGINT)
        return self.s->p[0] == '-' ? op_neg(vm, self, true) : self;
    vm_type_error(vm, "bad operand type for abs(): '%s'", val_type(self));
}

/* Normalises a number as Python's int() and float() do: strips white space, removes _. */
static bool clean_number(struct vm *vm, struct val s, char **out)
{
    size_t from = space_prefix(s.s->p, s.s->n), to = trimmed_len(s.s->p, s.s->n), n = 0;
    char *p = *out = vm_alloc(vm, s.s->n + 1);
    for (size_t i = from; i < to; i++) {
        char c = s.s->p[i];
        if (c == '_') {
            bool inside = i > from && i + 1 < to && isalnum((unsigned char)s.s->p[i - 1]) &&
                          isalnum((unsigned char)s.s->p[i + 1]);
            if (!inside)
                return false;
            continue;
        }
        p[n++] = c;
    }
    return n > 0;
}

static bool parse_float(struct vm *vm, struct val s, double *f)
{
    char *p, *end;
    if (!clean_number(vm, s, &p))
        return false;
    size_t digits = strspn(p, "+-0123456789.eE");
    if (p[digits] && strcasecmp(p + strspn(p, "+-"), "inf") != 0 &&
        strcasecmp(p + strspn(p, "+-"), "infinity") != 0 &&
        strcasecmp(p + strspn(p, "+-"), "nan") != 0)
        return false;
    *f = strtod(p, &end);
    return !*end && end != p;
}

static bool parse_int(struct vm *vm, struct val s, int base, struct val *out)
{
    char *p, *end;
    if (!clean_number(vm, s, &p))
        return false;
    char *digits = p + (*p == '-' || *p == '+');
    if (digits[0] == '0' && base != 10) {
        char c = (char)tolower((unsigned char)digits[1]);
        int named = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (named && (base == named || base == 0)) {
            base = named;
            memmove(digits, digits + 2, strlen(digits + 2) + 1);
        }
    }
    if (!isalnum((unsigned char)*digits))
        return false;
    errno = 0;
    *out = val_int(strtoll(p, &end, base ? base : 10));
    if (*end)
        return false;
    if (errno == ERANGE) {
        *out = big_parse(vm, p, base ? (unsigned)base : 10);
    }
    return true;
}

static struct val truncated(struct vm *vm, double f)
{
    if (fabs(f) >= 9.2e18)
        return big_from_double(vm, f);
    return val_int((int64_t)f);
}

FILTER(filter_int)
{
    double f;
    struct val out, def = arg_given(a, 0) ? a->v[0] : val_int(0);
    int64_t base = arg_int(vm, a, 1, 10);
    if (self.type == V_UNDEFINED)
        vm_fail_undefined(vm, self);
    if (self.type == V_BIGINT)
        return self;
    if (self.type == V_STR) {
        if (base >= 0 && base <= 36 && base != 1 && parse_int(vm, self, (int)base, &out))
            return out;
        return parse_float(vm, self, &f) && isfinite(f) ? truncated(vm, f) : def;
    }
    if (!val_is_number(self, &f) || isnan(f))
        return def;
    if (isinf(f))
        vm_type_error(vm, "cannot convert float infinity to integer");
    return self.type == V_FLOAT ? truncated(vm, f) : op_neg(vm, self, false);
}

FILTER(filter_float)
{
    double f;
    if (self.type == V_UNDEFINED)
        vm_fail_undefined(vm, self);
    if (val_is_number(self, &f))
        return val_float(f);
    if (self.type == V_BIGINT || (self.type == V_STR && parse_float(vm, self, &f)))
        return val_float(self.type == V_BIGINT
                             ? strtod(vm_printf(vm, "%.*s", (int)self.s->n, self.s->p), NULL)
                             : f);
    return arg_given(a, 0) ? a->v[0] : val_float(0);
}

/* round(): half to even on the exact binary value, like printf. */
static double round_to(struct vm *vm, double f, int64_t precision)
{
    if (!isfinite(f) || precision > 300)
        return f;
    if (precision >= 0)
        return strtod(vm_printf(vm, "%.*f", (int)precision, f), NULL);
    if (precision < -300)
        return copysign(0.0, f);
    double scale = pow(10, (double)-precision);
    return nearbyint(f / scale) * scale;
}

FILTER(filter_round)
{
    double f;
    int64_t precision = arg_int(vm, a, 0, 0), i;
    bool ceiling = arg_given(a, 1) && val_is(a->v[1], "ceil");
    bool floored = arg_given(a, 1) && val_is(a->v[1], "floor");
    if (arg_given(a, 1) && !ceiling && !floored && !val_is(a->v[1], "common"))
        vm_type_error(vm, "method must be common, ceil or floor");
    if (self.type == V_UNDEFINED)
        vm_fail_undefined(vm, self);
    if (self.type == V_BIGINT && precision >= 0 && !ceiling && !floored)
        return self;
    if (!val_is_number(self, &f))
        vm_type_error(vm, "type %s doesn't define __round__ method", val_type(self));
    if (ceiling || floored) {
        double scale = pow(10, (double)precision);
        return val_float((ceiling ? ceil(f * scale) : floor(f * scale)) / scale);
    }
    if (!val_as_int(self, &i))
        return val_float(round_to(vm, f, precision));
    return precision >= 0 ? val_int(i) : truncated(vm, round_to(vm, f, precision));
}

FILTER(filter_filesizeformat)
{
    static const char *const units[2][8] = {
        {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
        {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    bool binary = arg_bool(vm, a, 0, false);
    double bytes, base = binary ? 1024 : 1000, unit = base;
    struct val none = NONE_VALUE;
    struct val v = filter_float(vm, self, &(struct args){.v = &none, .n = 1});
    int i = 0;
    if (!val_is_number(v, &bytes))
        vm_type_error(vm, "could not convert to float: %s", val_repr_c(vm, self));
    if (bytes == 1)
        return val_cstr(vm, "1 Byte");
    if (bytes < base)
        return val_cstr(vm, vm_printf(vm, "%.0f Bytes", trunc(bytes)));
    for (; i < 7 && bytes >= unit * base; i++)
        unit *= base;
    return val_cstr(vm, vm_printf(vm, "%.1f %s", bytes / unit, units[binary][i]));
}
