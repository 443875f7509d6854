/* repr.c - str() and repr() as Python prints them. */
#include "common/template/eval.h"
#include "common/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* The shortest digits that read back as f, with Python's rule for exponents. */
void float_repr(double f, char out[32])
{
    char digits[32];
    if (!isfinite(f)) {
        snprintf(out, 32, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    for (int prec = fabs(f) < 2.3e-308 ? 0 : 14; prec <= 16;
         prec++) { /* 15 digits suffice except for denormals */
        snprintf(digits, sizeof(digits), "%.*e", prec, f);
        if (strtod(digits, NULL) == f)
            break;
    }
    char *e = strchr(digits, 'e');
    int exp = atoi(e + 1), n = 0;
    char d[20] = {0}, *o = out;
    for (char *p = digits; p < e; p++)
        if (*p >= '0' && *p <= '9')
            d[n++] = *p;
    while (n > 1 && d[n - 1] == '0')
        n--;
    if (digits[0] == '-')
        *o++ = '-';
    if (exp < -4 || exp >= 16) {
        *o++ = d[0];
        if (n > 1)
            o += sprintf(o, ".%.*s", n - 1, d + 1);
        sprintf(o, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        o += sprintf(o, "0.");
        for (int i = -1; i > exp; i--)
            *o++ = '0';
        sprintf(o, "%.*s", n, d);
    } else {
        for (int i = 0; i <= exp; i++)
            *o++ = i < n ? d[i] : '0';
        if (n > exp + 1)
            sprintf(o, ".%.*s", n - exp - 1, d + exp + 1);
        else
            memcpy(o, ".0", 3);
    }
}

static bool printable(uint32_t cp)
{
    if (cp < 0x7f)
        return cp >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static void repr_str(struct vm *vm, struct strbuf *b, const struct str *s)
{
    char quote = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
    sb_ch(vm, b, quote);
    vm_work(vm, (uint64_t)s->n * 4);
    for (size_t i = 0, len; i < s->n; i += len) {
        uint32_t cp = utf8_decode(s->p + i, s->n - i, &len);
        if (cp == (uint32_t)quote || cp == '\\') {
            sb_ch(vm, b, '\\');
            sb_ch(vm, b, (char)cp);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            sb_str(vm, b, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        } else if (printable(cp)) {
            sb_add(vm, b, s->p + i, len);
        } else {
            sb_fmt(vm, b, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        }
    }
    sb_ch(vm, b, quote);
}

static void repr_items(struct vm *vm, struct strbuf *b, const struct list *l, const char *open,
                       const char *close)
{
    sb_str(vm, b, open);
    for (uint32_t i = 0; i < l->n; i++) {
        if (i)
            sb_str(vm, b, ", ");
        val_repr(vm, b, l->v[i]);
    }
    sb_str(vm, b, close);
}

static void repr_dict(struct vm *vm, struct strbuf *b, const struct dict *d)
{
    sb_ch(vm, b, '{');
    for (uint32_t i = 0; i < d->n; i++) {
        if (i)
            sb_str(vm, b, ", ");
        val_repr(vm, b, d->e[i].k);
        sb_str(vm, b, ": ");
        val_repr(vm, b, d->e[i].v);
    }
    sb_ch(vm, b, '}');
}

static void repr_container(struct vm *vm, struct strbuf *b, struct val v)
{
    switch (v.type) {
    case V_LIST:
        repr_items(vm, b, v.l, "[", "]");
        break;
    case V_TUPLE:
        repr_items(vm, b, v.l, "(", v.l->n == 1 ? ",)" : ")");
        break;
    case V_VIEW:
        sb_str(vm, b, v.l->view);
        repr_items(vm, b, v.l, "([", "])");
        break;
    case V_NAMESPACE:
        sb_str(vm, b, "<Namespace ");
        repr_dict(vm, b, v.d);
        sb_ch(vm, b, '>');
        break;
    default:
        repr_dict(vm, b, v.d);
    }
}

static void repr_object(struct vm *vm, struct strbuf *b, struct val v)
{
    switch (v.type) {
    case V_LOOP:
        sb_fmt(vm, b, "<LoopContext %u/%u>", v.loop->turn + 1, loop_length(vm, v.loop));
        break;
    case V_MACRO:
        if (v.m->def->name.type == V_NONE)
            sb_str(vm, b, "<Macro anonymous>");
        else
            sb_fmt(vm, b, "<Macro %s>", val_repr_c(vm, v.m->def->name));
        break;
    default: /* Python prints an address, which differs in each run */
        sb_fmt(vm, b, "<%s object>", val_type(v));
    }
}

void val_repr(struct vm *vm, struct strbuf *b, struct val v)
{
    char num[32];
    vm_charge(vm, 1);
    switch (v.type) {
    case V_MISSING:
    case V_UNDEFINED:
        sb_str(vm, b, "Undefined");
        break;
    case V_NONE:
        sb_str(vm, b, "None");
        break;
    case V_BOOL:
        sb_str(vm, b, v.b ? "True" : "False");
        break;
    case V_INT:
        sb_fmt(vm, b, "%lld", (long long)v.i);
        break;
    case V_FLOAT:
        float_repr(v.f, num);
        sb_str(vm, b, num);
        break;
    case V_BIGINT:
        sb_add(vm, b, v.s->p, v.s->n);
        break;
    case V_STR:
        if (v.s->markup)
            sb_str(vm, b, "Markup(");
        repr_str(vm, b, v.s);
        if (v.s->markup)
            sb_ch(vm, b, ')');
        break;
    case V_RANGE:
        sb_fmt(vm, b, v.l->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
               (long long)v.l->start, (long long)v.l->stop, (long long)v.l->step);
        break;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
    case V_NAMESPACE:
    case V_DICT:
        vm_enter(vm);
        repr_container(vm, b, v);
        vm_leave(vm);
        break;
    default:
        repr_object(vm, b, v);
    }
}

void val_print(struct vm *vm, struct strbuf *b, struct val v)
{
    if (v.type == V_STR)
        sb_add(vm, b, v.s->p, v.s->n);
    else if (v.type != V_UNDEFINED && v.type != V_MISSING)
        val_repr(vm, b, v);
}

struct val val_to_str(struct vm *vm, struct val v)
{
    if (v.type == V_STR)
        return v;
    struct strbuf b = {0};
    val_print(vm, &b, v);
    return sb_val(vm, &b);
}

const char *val_repr_c(struct vm *vm, struct val v)
{
    struct strbuf b = {0};
    val_repr(vm, &b, v);
    return vm_printf(vm, "%.*s", (int)(b.n < 300 ? b.n : 300), b.p);
}
