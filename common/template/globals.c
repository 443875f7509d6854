/* globals.c - functions available to every template. */
#include "common/template/text.h"
#include <string.h>
#include <time.h>

#define GLOBAL(name) static struct val name(struct vm *vm, struct val self, const struct args *a)

enum { MAX_RANGE = 100000 }; /* as in Jinja's sandbox */

GLOBAL(g_range)
{
    int64_t v[3] = {0, 0, 1};
    (void)self;
    if (a->n < 1 || a->n > 3 || a->n_kw)
        vm_type_error(vm, "range expected %s %d argument%s, got %u",
                      a->n < 1 ? "at least" : "at most", a->n < 1 ? 1 : 3, a->n < 1 ? "" : "s",
                      a->n);
    for (uint32_t i = 0; i < a->n; i++)
        v[a->n == 1 ? 1 : i] = arg_int(vm, a, i, 0);
    int64_t start = v[0], stop = v[1], step = v[2];
    if (step == 0)
        vm_type_error(vm, "range() arg 3 must not be zero");
    __int128 span = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 width = step > 0 ? step : -(__int128)step,
             n = span > 0 ? (span + width - 1) / width : 0;
    if (n > MAX_RANGE)
        vm_type_error(vm, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                      MAX_RANGE);
    struct list *l = list_new(vm, (uint32_t)n);
    l->start = start;
    l->stop = stop;
    l->step = step;
    for (int64_t i = 0; i < (int64_t)n; i++)
        list_push(vm, l, val_int(start + i * step));
    return val_list(V_RANGE, l);
}

static void fill_dict(struct vm *vm, struct dict *d, const struct args *a)
{
    if (a->n > 1)
        vm_type_error(vm, "dict expected at most 1 argument, got %u", a->n);
    if (a->n && a->v[0].type == V_DICT) {
        for (uint32_t i = 0; i < a->v[0].d->n; i++)
            dict_set(vm, d, a->v[0].d->e[i].k, a->v[0].d->e[i].v);
    } else if (a->n) {
        const struct list *pairs = val_items(vm, a->v[0]);
        for (uint32_t i = 0; i < pairs->n; i++) {
            const struct list *kv = val_items(vm, pairs->v[i]);
            if (kv->n != 2)
                vm_type_error(vm,
                              "dictionary update sequence element #%u has length %u; 2 is required",
                              i, kv->n);
            dict_set(vm, d, kv->v[0], kv->v[1]);
        }
    }
    for (uint32_t i = 0; i < a->n_kw; i++)
        dict_set(vm, d, a->kw[i].name, a->kw[i].v);
}

GLOBAL(g_dict)
{
    (void)self;
    struct dict *d = dict_new(vm);
    fill_dict(vm, d, a);
    return val_dict(d);
}

GLOBAL(g_namespace)
{
    struct val v = g_dict(vm, self, a);
    v.type = V_NAMESPACE;
    return v;
}

static struct val cycler(struct vm *vm, enum vtype type, struct list *l)
{
    struct cycler *c = VM_NEW(vm, struct cycler, 1);
    c->v = l;
    return (struct val){.type = type, .cycler = c};
}

GLOBAL(g_cycler)
{
    (void)self;
    struct list *l = list_new(vm, a->n);
    if (!a->n)
        vm_type_error(vm, "at least one item has to be provided");
    for (uint32_t i = 0; i < a->n; i++)
        list_push(vm, l, a->v[i]);
    return cycler(vm, V_CYCLER, l);
}

GLOBAL(g_joiner)
{
    (void)self;
    struct list *l = list_new(vm, 1);
    list_push(vm, l, arg_given(a, 0) ? a->v[0] : val_cstr(vm, ", "));
    return cycler(vm, V_JOINER, l);
}

GLOBAL(g_raise)
{
    (void)self;
    struct val msg = val_to_str(vm, a->v[0]);
    vm_fail(vm, FAULT_SYNTAX, "%.*s", (int)(msg.s->n < 400 ? msg.s->n : 400), msg.s->p);
}

/* Uses the C library; only %f is Python's own. Untrusted formats are harmless: strftime() reads
 * only the format and tm. */
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static struct val time_format(struct vm *vm, struct val fmt)
{
    struct strbuf f = {0}, out = {0};
    struct tm tm;
    localtime_r(&vm->now.tv_sec, &tm);
    for (uint32_t i = 0; i < fmt.s->n; i++) {
        char c = fmt.s->p[i];
        if (c == '%' && i + 1 < fmt.s->n && fmt.s->p[i + 1] == 'f') {
            sb_fmt(vm, &f, "%06ld", vm->now.tv_nsec / 1000);
            i++;
        } else if (c == '%' && i + 1 < fmt.s->n && strchr("zZ", fmt.s->p[i + 1])) {
            i++; /* a naive time has no zone */
        } else if (c == '%' && i + 1 < fmt.s->n) {
            sb_add(vm, &f, fmt.s->p + i++, 2);
        } else if (c) {
            sb_ch(vm, &f, c);
        }
    }
    if (!f.n)
        return val_cstr(vm, "");
    sb_ch(vm, &f, ' '); /* distinguishes an empty result from one that did not fit */
    sb_ch(vm, &f, 0);
    for (size_t room = f.n * 2 + 64; room < f.n * 64 + 4096; room *= 2) {
        sb_reserve(vm, &out, room);
        size_t n = strftime(out.p, room, f.p, &tm);
        if (n) {
            out.n = n - 1;
            return sb_val(vm, &out);
        }
    }
    vm_fail(vm, FAULT_LIMIT, "the date format is too long");
}

GLOBAL(g_strftime_now)
{
    (void)self;
    return time_format(vm, text_need(vm, a->v[0], "strftime() argument 1"));
}

static const struct builtin globals[] = {
    {"range", g_range, NULL},
    {"dict", g_dict, NULL},
    {"namespace", g_namespace, NULL},
    {"cycler", g_cycler, NULL},
    {"joiner", g_joiner, "sep?"},
    {"raise_exception", g_raise, "message"},
    {"strftime_now", g_strftime_now, "format"},
};

struct val vm_global(struct vm *vm, const char *name, size_t n)
{
    const struct builtin *b = builtin_find(globals, sizeof(globals) / sizeof(*globals), name, n);
    if (!b)
        return MISSING;
    struct callable *c = VM_NEW(vm, struct callable, 1);
    c->fn = b;
    return (struct val){.type = V_CALLABLE, .c = c};
}
