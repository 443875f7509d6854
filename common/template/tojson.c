/* tojson.c - json.dumps() with the options that transformers gives it. */
#include "common/template/vm.h"
#include "common/utf8.h"
#include <math.h>
#include <string.h>

struct dump {
    bool ascii, sort, pretty;
    struct val indent; /* one level of it */
    struct val item_sep, key_sep;
    struct strbuf b;
};

static void dump_str(struct vm *vm, struct dump *d, const struct str *s)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    struct strbuf *b = &d->b;
    sb_ch(vm, b, '"');
    vm_work(vm, (uint64_t)s->n * 2);
    for (size_t i = 0, len; i < s->n; i += len) {
        unsigned char c = (unsigned char)s->p[i];
        const char *f = c ? memchr(from, c, sizeof(from) - 1) : NULL;
        len = 1;
        if (f) {
            sb_ch(vm, b, '\\');
            sb_ch(vm, b, to[f - from]);
        } else if (c == 0xc0) { /* U+0000 of a body: json/exact.h */
            sb_str(vm, b, "\\u0000");
            len = 2;
        } else if (c < 0x20 || (c == 0x7f && d->ascii)) {
            sb_fmt(vm, b, "\\u%04x", c);
        } else if (c < 0x80 || !d->ascii) {
            sb_ch(vm, b, (char)c);
        } else {
            uint32_t cp = utf8_decode(s->p + i, s->n - i, &len);
            if (cp > 0xffff)
                sb_fmt(vm, b, "\\u%04x\\u%04x", 0xd7c0 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
            else
                sb_fmt(vm, b, "\\u%04x", cp);
        }
    }
    sb_ch(vm, b, '"');
}

static void newline(struct vm *vm, struct dump *d, int level)
{
    if (!d->pretty)
        return;
    sb_ch(vm, &d->b, '\n');
    for (int i = 0; i < level; i++)
        sb_add(vm, &d->b, d->indent.s->p, d->indent.s->n);
}

static void dump_value(struct vm *vm, struct dump *d, struct val v, int level);

static void dump_list(struct vm *vm, struct dump *d, const struct list *l, int level)
{
    sb_ch(vm, &d->b, '[');
    for (uint32_t i = 0; i < l->n; i++) {
        if (i)
            sb_add(vm, &d->b, d->item_sep.s->p, d->item_sep.s->n);
        newline(vm, d, level + 1);
        dump_value(vm, d, l->v[i], level + 1);
    }
    if (l->n)
        newline(vm, d, level);
    sb_ch(vm, &d->b, ']');
}

static void dump_scalar(struct vm *vm, struct dump *d, struct val v)
{
    char num[32];
    switch (v.type) {
    case V_STR:
        dump_str(vm, d, v.s);
        break;
    case V_NONE:
        sb_str(vm, &d->b, "null");
        break;
    case V_BOOL:
        sb_str(vm, &d->b, v.b ? "true" : "false");
        break;
    case V_FLOAT:
        float_repr(v.f, num);
        sb_str(vm, &d->b,
               isnan(v.f)   ? "NaN"
               : isinf(v.f) ? v.f < 0 ? "-Infinity" : "Infinity"
                            : num);
        break;
    case V_INT:
    case V_BIGINT:
        val_repr(vm, &d->b, v);
        break;
    default:
        vm_type_error(vm, "Object of type %s is not JSON serializable", val_type(v));
    }
}

static void dump_key(struct vm *vm, struct dump *d, struct val k)
{
    switch (k.type) {
    case V_STR:
        dump_str(vm, d, k.s);
        break;
    case V_NONE:
    case V_BOOL:
    case V_FLOAT:
    case V_INT:
    case V_BIGINT:
        sb_ch(vm, &d->b, '"');
        dump_scalar(vm, d, k);
        sb_ch(vm, &d->b, '"');
        break;
    default:
        vm_type_error(vm, "keys must be str, int, float, bool or None, not %s", val_type(k));
    }
}

static void dump_dict(struct vm *vm, struct dump *d, const struct dict *o, int level)
{
    struct val *keys = VM_NEW(vm, struct val, o->n + 1), *values = VM_NEW(vm, struct val, o->n + 1);
    for (uint32_t i = 0; i < o->n; i++) {
        keys[i] = o->e[i].k;
        values[i] = o->e[i].v;
    }
    if (d->sort)
        list_sort(vm, keys, values, o->n, false);
    sb_ch(vm, &d->b, '{');
    for (uint32_t i = 0; i < o->n; i++) {
        if (i)
            sb_add(vm, &d->b, d->item_sep.s->p, d->item_sep.s->n);
        newline(vm, d, level + 1);
        dump_key(vm, d, keys[i]);
        sb_add(vm, &d->b, d->key_sep.s->p, d->key_sep.s->n);
        dump_value(vm, d, values[i], level + 1);
    }
    if (o->n)
        newline(vm, d, level);
    sb_ch(vm, &d->b, '}');
}

static void dump_value(struct vm *vm, struct dump *d, struct val v, int level)
{
    vm_charge(vm, 1);
    if (v.type != V_LIST && v.type != V_TUPLE && v.type != V_DICT) {
        dump_scalar(vm, d, v);
        return;
    }
    vm_enter(vm);
    if (v.type == V_DICT)
        dump_dict(vm, d, v.d, level);
    else
        dump_list(vm, d, v.l, level);
    vm_leave(vm);
}

/* tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False) */
struct val filter_tojson(struct vm *vm, struct val v, const struct args *a)
{
    struct dump d = {.ascii = arg_bool(vm, a, 0, false), .sort = arg_bool(vm, a, 3, false)};
    struct val indent = arg_given(a, 1) ? a->v[1] : NONE_VALUE;
    struct val sep = arg_given(a, 2) ? a->v[2] : NONE_VALUE;
    if (indent.type == V_STR) {
        d.indent = indent;
    } else if (indent.type != V_NONE) {
        struct strbuf pad = {0};
        sb_fill(vm, &pad, ' ', arg_int(vm, a, 1, 0));
        d.indent = sb_val(vm, &pad);
    }
    d.pretty = indent.type != V_NONE;
    d.item_sep = val_cstr(vm, d.pretty ? "," : ", ");
    d.key_sep = val_cstr(vm, ": ");
    if (sep.type != V_NONE) {
        bool pair = (sep.type == V_TUPLE || sep.type == V_LIST) && sep.l->n == 2;
        if (!pair || sep.l->v[0].type != V_STR || sep.l->v[1].type != V_STR)
            vm_type_error(vm, "separators must be two strings");
        d.item_sep = sep.l->v[0];
        d.key_sep = sep.l->v[1];
    }
    dump_value(vm, &d, v, 0);
    return sb_val(vm, &d.b);
}
