/* format.c - "{} {name:>10}".format(...), with the sandbox's rules for attributes in fields. */
#include "common/template/number.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

struct number_format {
    struct vm *vm;
    const struct args *a;
    int64_t next; /* automatic field numbering; -1: explicit numbers */
    bool markup;
};

static bool is_digits(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] < '0' || p[i] > '9')
            return false;
    return n > 0 && n < 10;
}

static struct val first_part(struct number_format *f, const char *p, size_t n)
{
    if (!n || is_digits(p, n)) {
        if ((n && f->next > 0) || (!n && f->next < 0))
            vm_type_error(f->vm, "cannot switch from %s",
                          n ? "automatic field numbering to manual field specification"
                            : "manual field specification to automatic field numbering");
        int64_t i = n ? strtol(p, NULL, 10) : f->next++;
        if (n)
            f->next = -1;
        if (i >= f->a->n)
            vm_type_error(f->vm, "Replacement index %lld out of range for positional args tuple",
                          (long long)i);
        return f->a->v[i];
    }
    for (uint32_t i = 0; i < f->a->n_kw; i++)
        if (f->a->kw[i].name.s->n == n && !memcmp(f->a->kw[i].name.s->p, p, n))
            return f->a->kw[i].v;
    vm_type_error(f->vm, "'%.*s'", (int)n, p);
}

/* name.attr[item].attr */
static struct val field_value(struct number_format *f, const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] != '.' && p[i] != '[')
        i++;
    struct val v = first_part(f, p, i);
    while (i < n) {
        bool attr = p[i] == '.';
        size_t from = ++i;
        while (i < n && (attr ? p[i] != '.' && p[i] != '[' : p[i] != ']'))
            i++;
        if (i == from || (!attr && i == n))
            vm_type_error(f->vm, i == from ? "Empty attribute in format string"
                                           : "Missing ']' in format string");
        if (attr)
            v = vm_attr(f->vm, v, p + from, i - from);
        else
            v = vm_item(f->vm, v,
                        is_digits(p + from, i - from) ? val_int(strtol(p + from, NULL, 10))
                                                      : val_str(f->vm, p + from, i - from));
        i += !attr;
    }
    return v;
}

static int align_at(const char *p, size_t n) { return n && *p && strchr("<>=^", *p) ? *p : 0; }

static int64_t read_number(const char **p, const char *end)
{
    int64_t n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p)
        if (n < 100000000)
            n = n * 10 + (**p - '0');
    return n;
}

static void read_spec(struct number_format *f, struct val text, struct spec *s)
{
    const char *p = text.s->p, *end = p + text.s->n;
    size_t len;
    *s = (struct spec){.precision = -1};
    uint32_t cp = utf8_decode(p, text.s->n, &len);
    if (p < end && align_at(p + len, (size_t)(end - p) - len)) {
        s->fill = cp;
        s->align = p[len];
        p += len + 1;
    } else if (align_at(p, (size_t)(end - p))) {
        s->align = *p++;
    }
    if (p < end && strchr("+- ", *p))
        s->sign = *p++;
    if (p < end && *p == '#')
        s->alt = p++ != NULL;
    if (p < end && *p == '0')
        s->zero = p++ != NULL;
    s->width = read_number(&p, end);
    if (p < end && (*p == ',' || *p == '_'))
        s->group = *p++;
    if (p < end && *p == '.') {
        if (++p == end || *p < '0' || *p > '9')
            vm_type_error(f->vm, "Format specifier missing precision");
        int64_t n = read_number(&p, end);
        s->precision = n > MAX_PRECISION ? MAX_PRECISION : (int)n;
    }
    if (p < end)
        s->type = *p++;
    if (p < end)
        vm_type_error(f->vm, "Invalid format specifier");
}

static void put_value(struct number_format *f, struct strbuf *b, struct val v, struct val text)
{
    struct vm *vm = f->vm;
    struct spec s;
    int64_t i;
    double d;
    if (!text.s->n) {
        struct val str = val_to_str(vm, v);
        if (f->markup)
            str = html_escape(vm, str);
        sb_add(vm, b, str.s->p, str.s->n);
        return;
    }
    read_spec(f, text, &s);
    if (v.type == V_STR) {
        if (s.type && s.type != 's')
            vm_type_error(vm, "Unknown format code '%c' for object of type 'str'", s.type);
        if (s.sign)
            vm_type_error(vm, "Sign not allowed in string format specifier");
        if (s.group)
            vm_type_error(vm, "Cannot specify '%c' with 's'.", s.group);
        if (s.align == '=')
            vm_type_error(vm, "'=' alignment not allowed in string format specifier");
        if (s.zero && !s.fill)
            s.fill = '0';
        format_text(vm, b, f->markup ? html_escape(vm, v) : v, &s);
    } else if (val_as_int(v, &i) && (!s.type || strchr("bcdoxXn", s.type))) {
        if (s.type == 'c') {
            struct strbuf c = {0};
            if (i < 0 || i > 0x10ffff)
                vm_type_error(vm, "%%c arg not in range(0x110000)");
            sb_cp(vm, &c, (uint32_t)i);
            format_text(vm, b, sb_val(vm, &c), &s);
            return;
        }
        if (s.precision >= 0)
            vm_type_error(vm, "Precision not allowed in integer format specifier");
        format_int(vm, b, i, &s);
    } else if (v.type == V_BIGINT && (!s.type || strchr("bdoxXn", s.type))) {
        if (s.precision >= 0)
            vm_type_error(vm, "Precision not allowed in integer format specifier");
        format_big(vm, b, v, &s);
    } else if (val_is_number(v, &d) && (!s.type || strchr("eEfFgGn%", s.type))) {
        format_float(vm, b, d, &s);
    } else if (val_is_number(v, &d)) {
        vm_type_error(vm, "Unknown format code '%c' for object of type '%s'", s.type, val_type(v));
    } else {
        vm_type_error(vm, "unsupported format string passed to %s.__format__", val_type(v));
    }
}

static void expand(struct number_format *f, struct strbuf *b, const char *p, const char *end,
                   int depth);

static void field(struct number_format *f, struct strbuf *b, const char *p, const char *end,
                  int depth)
{
    const char *name = p;
    for (bool item = false; p < end && (item || (*p != '!' && *p != ':')); p++)
        item = *p == '[' || (item && *p != ']');
    struct val v = field_value(f, name, (size_t)(p - name));
    if (p < end && *p == '!') {
        char conv = p + 1 < end ? p[1] : 0;
        if (!conv || !strchr("rsa", conv))
            vm_type_error(f->vm, "Unknown conversion specifier %c", conv ? conv : ' ');
        struct strbuf r = {0};
        if (conv == 's')
            val_print(f->vm, &r, v);
        else
            val_repr(f->vm, &r, v);
        v = sb_val(f->vm, &r);
        p += 2;
    }
    struct strbuf spec = {0};
    if (p < end && *p == ':')
        expand(f, &spec, p + 1, end, depth + 1);
    put_value(f, b, v, sb_val(f->vm, &spec));
}

static void expand(struct number_format *f, struct strbuf *b, const char *p, const char *end,
                   int depth)
{
    if (depth > 2)
        vm_type_error(f->vm, "Max string recursion exceeded");
    while (p < end) {
        vm_charge(f->vm, 1);
        if ((*p == '{' || *p == '}') && p + 1 < end && p[1] == *p && depth == 0) {
            sb_ch(f->vm, b, *p);
            p += 2;
        } else if (*p == '}') {
            vm_type_error(f->vm, "Single '}' encountered in format string");
        } else if (*p != '{') {
            sb_ch(f->vm, b, *p++);
        } else {
            const char *from = ++p;
            int nested = 1;
            for (; p < end && nested; p++)
                nested += (*p == '{') - (*p == '}');
            if (nested)
                vm_type_error(f->vm, from == end ? "Single '{' encountered in format string"
                                                 : "expected '}' before end of string");
            field(f, b, from, p - 1, depth);
        }
    }
}

struct val str_format(struct vm *vm, struct val fmt, const struct args *a)
{
    struct number_format f = {.vm = vm, .a = a, .markup = fmt.s->markup};
    struct strbuf b = {0};
    vm_enter(vm);
    expand(&f, &b, fmt.s->p, fmt.s->p + fmt.s->n, 0);
    vm_leave(vm);
    return val_markup(vm, sb_val(vm, &b), fmt.s->markup);
}
