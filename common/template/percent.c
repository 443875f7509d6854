/* percent.c - "%s: %d" % values, printf-style formatting as Python does it. */
#include "common/template/bigint.h"
#include "common/template/number.h"
#include <math.h>
#include <string.h>

struct percent {
    struct vm *vm;
    const char *start, *p, *end;
    struct val arg; /* the right operand of % */
    const struct val *v;
    uint32_t n, used;
    bool mapping; /* a value was selected by name */
    bool markup;
    struct val current;
};

static struct val next_arg(struct percent *f)
{
    if (f->mapping) {
        f->mapping = false;
        return f->current;
    }
    if (f->used >= f->n)
        vm_type_error(f->vm, "not enough arguments for format string");
    return f->v[f->used++];
}

static void named_arg(struct percent *f)
{
    const char *start = f->p;
    int depth = 1;
    for (; f->p < f->end && depth; f->p++)
        depth += (*f->p == '(') - (*f->p == ')');
    if (depth)
        vm_type_error(f->vm, "incomplete format key");
    if (f->arg.type != V_DICT)
        vm_type_error(f->vm, "format requires a mapping");
    const struct val *v = dict_find(f->vm, f->arg.d, start, (size_t)(f->p - start - 1));
    if (!v)
        vm_type_error(f->vm, "'%.*s'", (int)(f->p - start - 1), start);
    f->current = *v;
    f->mapping = true;
}

static int64_t number_or_star(struct percent *f)
{
    int64_t n = 0;
    if (f->p < f->end && *f->p == '*') {
        f->p++;
        if (!val_as_int(next_arg(f), &n))
            vm_type_error(f->vm, "* wants int");
        return n;
    }
    for (; f->p < f->end && *f->p >= '0' && *f->p <= '9'; f->p++)
        if (n < 100000000)
            n = n * 10 + (*f->p - '0');
    return n;
}

static void read_spec(struct percent *f, struct spec *s)
{
    *s = (struct spec){.precision = -1};
    for (bool flags = true; flags && f->p < f->end;) {
        switch (*f->p) {
        case '-':
            s->align = '<';
            break;
        case '+':
            s->sign = '+';
            break;
        case ' ':
            s->sign = s->sign ? s->sign : ' ';
            break;
        case '#':
            s->alt = true;
            break;
        case '0':
            s->zero = true;
            break;
        default:
            flags = false;
        }
        f->p += flags;
    }
    s->width = number_or_star(f);
    if (s->width < 0) {
        s->align = '<';
        s->width = -s->width;
    }
    if (f->p < f->end && *f->p == '.') {
        f->p++;
        int64_t n = number_or_star(f);
        s->precision = n < 0 ? 0 : n > MAX_PRECISION ? MAX_PRECISION : (int)n;
    }
    while (f->p < f->end && (*f->p == 'l' || *f->p == 'h' || *f->p == 'L'))
        f->p++;
    if (f->p == f->end)
        vm_type_error(f->vm, "incomplete format");
    s->type = *f->p++;
}

static void put_integer(struct percent *f, struct strbuf *b, struct spec *s, struct val v)
{
    int64_t i = 0;
    bool decimal = strchr("diu", s->type);
    if (decimal && v.type == V_FLOAT && isfinite(v.f))
        v = big_from_double(f->vm, v.f);
    if (v.type == V_BIGINT) {
        s->align = s->align ? s->align : s->zero ? '=' : '>';
        format_big(f->vm, b, v, s);
        return;
    }
    if (!val_as_int(v, &i))
        vm_type_error(f->vm, "%%%c format: %s is required, not %s", s->type,
                      decimal ? "a real number" : "an integer", val_type(v));
    s->align = s->align ? s->align : s->zero ? '=' : '>';
    format_int(f->vm, b, i, s);
}

static void put_char(struct percent *f, struct strbuf *b, const struct spec *s, struct val v)
{
    int64_t i;
    struct strbuf c = {0};
    if (val_as_int(v, &i)) {
        if (i < 0 || i > 0x10ffff)
            vm_type_error(f->vm, "%%c arg not in range(0x110000)");
        sb_cp(f->vm, &c, (uint32_t)i);
        v = sb_val(f->vm, &c);
    }
    if (v.type != V_STR || v.s->n_chars != 1)
        vm_type_error(f->vm, "%%c requires int or char");
    struct spec text = {.width = s->width, .align = s->align ? s->align : '>', .precision = -1};
    format_text(f->vm, b, v, &text);
}

static struct val as_text(struct percent *f, char type, struct val v)
{
    struct strbuf r = {0};
    if (type == 's')
        return f->markup ? html_escape(f->vm, val_to_str(f->vm, v)) : val_to_str(f->vm, v);
    val_repr(f->vm, &r, v);
    return sb_val(f->vm, &r);
}

static void conversion(struct percent *f, struct strbuf *b)
{
    struct spec s;
    double d;
    if (f->p < f->end && *f->p == '(') {
        f->p++;
        named_arg(f);
    }
    read_spec(f, &s);
    if (s.type == '%') {
        sb_ch(f->vm, b, '%');
        return;
    }
    if (!strchr("diuxXosracbeEfFgG", s.type) || s.type == 'b')
        vm_type_error(f->vm, "unsupported format character '%c' (0x%x) at index %td", s.type,
                      (unsigned char)s.type, f->p - 1 - f->start);
    struct val v = next_arg(f);
    if (strchr("diuxXo", s.type)) {
        put_integer(f, b, &s, v);
    } else if (s.type == 'c') {
        put_char(f, b, &s, v);
    } else if (strchr("sra", s.type)) {
        s.align = s.align ? s.align : '>';
        format_text(f->vm, b, as_text(f, s.type, v), &s);
    } else {
        if (!val_is_number(v, &d))
            vm_type_error(f->vm, "must be real number, not %s", val_type(v));
        format_float(f->vm, b, d, &s);
    }
}

struct val percent_format(struct vm *vm, struct val fmt, struct val arg)
{
    struct percent f = {.vm = vm, .start = fmt.s->p, .p = fmt.s->p, .arg = arg};
    struct strbuf b = {0};
    f.end = f.p + fmt.s->n;
    f.v = arg.type == V_TUPLE ? arg.l->v : &arg;
    f.n = arg.type == V_TUPLE ? arg.l->n : 1;
    f.markup = fmt.s->markup;
    while (f.p < f.end) {
        const char *next = memchr(f.p, '%', (size_t)(f.end - f.p));
        sb_add(vm, &b, f.p, (size_t)((next ? next : f.end) - f.p));
        f.p = next ? next + 1 : f.end;
        if (next && f.p == f.end)
            vm_type_error(vm, "incomplete format");
        if (next) {
            vm_charge(vm, 1);
            conversion(&f, &b);
        }
    }
    bool any_number =
        arg.type == V_DICT || arg.type == V_LIST || arg.type == V_RANGE || arg.type == V_UNDEFINED;
    if (f.used < f.n && !any_number)
        vm_type_error(vm, "not all arguments converted during string formatting");
    return val_markup(vm, sb_val(vm, &b), fmt.s->markup);
}
