#include "common/template/number.h"
#include "common/template/bigint.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Writes sign, prefix and digits, padded to the width. */
static void put_number(struct vm *vm, struct strbuf *b, bool negative, const char *prefix,
                       const char *digits, const struct spec *s)
{
    const char *sign = negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    char align = s->align ? s->align : s->zero ? '=' : '>';
    uint32_t fill = s->fill ? s->fill : s->zero && align == '=' ? '0' : ' ';
    int64_t pad = s->width - (int64_t)(strlen(sign) + strlen(prefix) + strlen(digits));
    int64_t left = pad < 0 ? 0 : align == '>' ? pad : align == '^' ? pad / 2 : 0;
    int64_t right = pad < 0 || align == '>' || align == '=' ? 0 : pad - left;
    sb_fill(vm, b, fill, left);
    sb_str(vm, b, sign);
    sb_str(vm, b, prefix);
    if (align == '=')
        sb_fill(vm, b, fill, pad);
    sb_str(vm, b, digits);
    sb_fill(vm, b, fill, right);
}

/* Inserts a separator every `every` digits, up to the first non-digit. */
static const char *grouped(struct vm *vm, const char *digits, char group, size_t every)
{
    size_t n = 0;
    while (isxdigit((unsigned char)digits[n]))
        n++;
    char *out = vm_alloc(vm, strlen(digits) + n + 1), *o = out;
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % every == 0)
            *o++ = group;
        *o++ = digits[i];
    }
    memcpy(o, digits + n, strlen(digits + n) + 1);
    return out;
}

static unsigned base_of(const struct spec *s)
{
    char lower = (char)tolower((unsigned char)s->type);
    return lower == 'x' ? 16 : lower == 'o' ? 8 : lower == 'b' ? 2 : 10;
}

/* The digits of a magnitude. */
static void put_int(struct vm *vm, struct strbuf *b, bool negative, const char *p,
                    const struct spec *s)
{
    unsigned base = base_of(s);
    const char *prefix = !s->alt || base == 10 ? ""
                         : s->type == 'X'      ? "0X"
                         : base == 16          ? "0x"
                         : base == 8           ? "0o"
                                               : "0b";
    const char *digits = p;
    if (s->precision > (int)strlen(p)) /* %-formatting: minimum number of digits */
        digits = vm_printf(vm, "%0*d%s", s->precision - (int)strlen(p), 0, p);
    if (s->group)
        digits = grouped(vm, digits, s->group, base == 10 ? 3 : 4);
    put_number(vm, b, negative, prefix, digits, s);
}

void format_int(struct vm *vm, struct strbuf *b, int64_t v, const struct spec *s)
{
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    char text[80], *p = text + sizeof(text) - 1;
    unsigned base = base_of(s);
    *p = 0;
    do
        *--p = (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
    while (u /= base);
    put_int(vm, b, v < 0, p, s);
}

void format_big(struct vm *vm, struct strbuf *b, struct val v, const struct spec *s)
{
    char *digits = (char *)(uintptr_t)big_digits(vm, v, base_of(s));
    for (char *p = digits; s->type == 'X' && *p; p++)
        *p = (char)toupper((unsigned char)*p);
    put_int(vm, b, v.s->p[0] == '-', digits, s);
}

/* str(f) with a precision, or repr: without a format type. */
static const char *general(struct vm *vm, double f, int precision)
{
    char repr[32];
    if (precision < 0) {
        float_repr(f, repr);
        return vm_printf(vm, "%s", repr);
    }
    const char *g = vm_printf(vm, "%.*g", precision ? precision : 1, f);
    if (strpbrk(g, ".en"))
        return g;
    return strlen(g) >= (size_t)precision ? vm_printf(vm, "%.*e", precision - 1, f)
                                          : vm_printf(vm, "%s.0", g);
}

void format_float(struct vm *vm, struct strbuf *b, double f, const struct spec *s)
{
    bool negative = signbit(f) && !isnan(f);
    int precision = s->precision < 0 ? 6 : s->precision;
    const char *digits;
    f = fabs(f);
    if (!isfinite(f)) {
        digits = isnan(f) ? "nan" : "inf";
        if (isupper((unsigned char)s->type))
            digits = isnan(f) ? "NAN" : "INF";
        if (s->type == '%')
            digits = vm_printf(vm, "%s%%", digits);
    } else if (s->type == '%') {
        digits = vm_printf(vm, "%.*f%%", precision, f * 100);
    } else if (s->type == 'f' || s->type == 'F') {
        digits = vm_printf(vm, s->alt ? "%#.*f" : "%.*f", precision, f);
    } else if (s->type == 'e') {
        digits = vm_printf(vm, s->alt ? "%#.*e" : "%.*e", precision, f);
    } else if (s->type == 'E') {
        digits = vm_printf(vm, s->alt ? "%#.*E" : "%.*E", precision, f);
    } else if (s->type == 'g' || s->type == 'n') {
        digits = vm_printf(vm, s->alt ? "%#.*g" : "%.*g", precision, f);
    } else if (s->type == 'G') {
        digits = vm_printf(vm, s->alt ? "%#.*G" : "%.*G", precision, f);
    } else {
        digits = general(vm, f, s->precision);
    }
    if (s->group && isdigit((unsigned char)*digits))
        digits = grouped(vm, digits, s->group, 3);
    put_number(vm, b, negative, "", digits, s);
}

void format_text(struct vm *vm, struct strbuf *b, struct val v, const struct spec *s)
{
    if (s->precision >= 0 && (uint32_t)s->precision < v.s->n_chars)
        v = str_slice(vm, v, 0, s->precision);
    int64_t pad = s->width - v.s->n_chars;
    int64_t left = pad < 0 ? 0 : s->align == '>' ? pad : s->align == '^' ? pad / 2 : 0;
    sb_fill(vm, b, s->fill ? s->fill : ' ', left);
    sb_add(vm, b, v.s->p, v.s->n);
    sb_fill(vm, b, s->fill ? s->fill : ' ', pad - left);
}
