#include "common/template/vm.h"
#include "common/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const fault_text[] = {
#define X(kind, text) [kind] = text,
    VM_FAULTS(X)
#undef X
};

void vm_fail(struct vm *vm, enum vm_fault kind, const char *fmt, ...)
{
    char msg[sizeof(vm->e->msg)];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    if (vm->bare_errors)
        err_set(vm->e, ERR_TEMPLATE, "%s", msg);
    else
        err_set(vm->e, ERR_TEMPLATE, "%s: %.400s (in <string>:%u)", fault_text[kind], msg,
                vm->line);
    /* truncation may have split a character */
    size_t n = strlen(vm->e->msg), tail = utf8_incomplete_tail(vm->e->msg, n);
    vm->e->msg[n - tail] = 0;
    longjmp(vm->on_fail, 1);
}

void vm_fail_undefined(struct vm *vm, struct val v)
{
    const struct undef *u = v.u;
    enum vm_fault kind = u->security ? FAULT_SECURITY : FAULT_UNDEFINED;
    if (u->hint)
        vm_fail(vm, kind, "%s", u->hint);
    const char *name = val_repr_c(vm, u->name);
    if (u->obj.type == V_MISSING)
        vm_fail(vm, kind, "%s is undefined", name);
    const char *owner =
        u->obj.type == V_NONE ? "None" : vm_printf(vm, "%s object", val_type(u->obj));
    if (u->obj.type == V_NAMESPACE || u->obj.type == V_CYCLER || u->obj.type == V_JOINER)
        owner = vm_printf(vm, "jinja2.utils.%s object", val_type(u->obj));
    if (u->obj.type == V_LOOP || u->obj.type == V_MACRO)
        owner = vm_printf(vm, "jinja2.runtime.%s object", val_type(u->obj));
    if (u->name.type != V_STR)
        vm_fail(vm, kind, "%s has no element %s", owner, name);
    vm_fail(vm, kind, "'%s' has no attribute %s", owner, name);
}

void *vm_alloc(struct vm *vm, size_t n)
{
    void *p = arena_alloc(&vm->mem, n, 16);
    if (!p && !vm->mem.full) {
        err_nomem(vm->e);
        longjmp(vm->on_fail, 1);
    }
    if (!p)
        vm_fail(vm, FAULT_LIMIT, "the template needs too much memory");
    return p;
}

void *vm_grow(struct vm *vm, const void *old, uint32_t n, uint32_t *cap, uint32_t first,
              size_t size)
{
    *cap = *cap ? *cap * 2 : first;
    void *p = vm_alloc(vm, *cap * size);
    if (n)
        memcpy(p, old, n * size);
    return p;
}

const char *vm_printf(struct vm *vm, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = vm_alloc(vm, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return p;
}

void vm_out_of_steps(struct vm *vm)
{
    vm_fail(vm, FAULT_LIMIT, "the template takes too many steps");
}

void vm_enter(struct vm *vm)
{
    if (++vm->depth > vm->max_depth)
        vm_fail(vm, FAULT_LIMIT, "the template is nested too deeply");
}

/* ---------------------------------------------------------------- text */
void sb_reserve(struct vm *vm, struct strbuf *b, size_t extra)
{
    if (extra > vm->max_output || b->n + extra > vm->max_output)
        vm_fail(vm, FAULT_LIMIT, "the template writes too much text");
    if (b->n + extra <= b->cap)
        return;
    size_t cap = b->cap ? b->cap * 2 : 64;
    while (cap < b->n + extra)
        cap *= 2;
    char *p = vm_alloc(vm, cap);
    if (b->n)
        memcpy(p, b->p, b->n);
    vm_work(vm, b->n);
    b->p = p;
    b->cap = cap;
}

void sb_add(struct vm *vm, struct strbuf *b, const char *p, size_t n)
{
    sb_reserve(vm, b, n);
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    vm_work(vm, n);
}

void sb_str(struct vm *vm, struct strbuf *b, const char *s) { sb_add(vm, b, s, strlen(s)); }
void sb_ch(struct vm *vm, struct strbuf *b, char c)
{
    if (b->n == b->cap)
        sb_reserve(vm, b, 1);
    b->p[b->n++] = c;
}

void sb_cp(struct vm *vm, struct strbuf *b, uint32_t cp)
{
    char c[4];
    size_t n = utf8_encode(cp, c);
    if (!n)
        n = utf8_encode(0xfffd, c);
    for (size_t i = 0; i < n; i++)
        sb_ch(vm, b, c[i]);
}

void sb_fill(struct vm *vm, struct strbuf *b, uint32_t cp, int64_t n)
{
    if (n <= 0)
        return;
    if ((uint64_t)n > vm->max_output)
        n = (int64_t)vm->max_output + 1; /* sb_reserve then fails */
    sb_reserve(vm, b, (size_t)n);
    vm_work(vm, (uint64_t)n * 4);
    while (n-- > 0)
        sb_cp(vm, b, cp);
}

void sb_fmt(struct vm *vm, struct strbuf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    sb_reserve(vm, b, (size_t)n + 1);
    vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
    b->n += (size_t)n;
    va_end(again);
    va_end(ap);
}

struct val sb_val(struct vm *vm, struct strbuf *b) { return val_wrap(vm, b->p, b->n); }

/* ---------------------------------------------------------------- calls */
const struct builtin *builtin_find(const struct builtin *rows, size_t n_rows, const char *name,
                                   size_t n)
{
    for (size_t i = 0; i < n_rows; i++)
        /* not strcmp(): `name` may contain a NUL */
        if (strlen(rows[i].name) == n && !memcmp(rows[i].name, name, n))
            return &rows[i];
    return NULL;
}

enum { MAX_PARAMS = 8 };

struct val builtin_call(struct vm *vm, const struct builtin *b, struct val self,
                        const struct args *a)
{
    if (!b->params)
        return b->fn(vm, self, a);
    struct val bound[MAX_PARAMS] = {0};
    uint32_t n = 0, kw_used = 0;
    for (const char *p = b->params; *p; n++) {
        size_t len = strcspn(p, " ?");
        bool optional = p[len] == '?';
        if (n < a->n)
            bound[n] = a->v[n];
        for (uint32_t k = 0; k < a->n_kw; k++) {
            const struct str *name = a->kw[k].name.s;
            if (name->n != len || memcmp(name->p, p, len) != 0)
                continue;
            if (bound[n].type != V_MISSING)
                vm_type_error(vm, "%s() got multiple values for argument '%.*s'", b->name, (int)len,
                              p);
            bound[n] = a->kw[k].v;
            kw_used++;
        }
        if (bound[n].type == V_MISSING && !optional)
            vm_type_error(vm, "%s() missing 1 required positional argument: '%.*s'", b->name,
                          (int)len, p);
        p += len + optional;
        p += *p == ' ';
    }
    if (a->n > n)
        vm_type_error(vm, "%s() takes %u positional argument%s but %u %s given", b->name, n,
                      n == 1 ? "" : "s", a->n, a->n == 1 ? "was" : "were");
    if (kw_used < a->n_kw)
        vm_type_error(vm, "%s() got an unexpected keyword argument", b->name);
    struct args all = {.v = bound, .n = n};
    return b->fn(vm, self, &all);
}

int64_t arg_int(struct vm *vm, const struct args *a, uint32_t i, int64_t def)
{
    int64_t n = def;
    if (!arg_given(a, i))
        return def;
    if (a->v[i].type == V_UNDEFINED)
        vm_fail_undefined(vm, a->v[i]);
    if (!val_as_int(a->v[i], &n))
        vm_type_error(vm, "'%s' object cannot be interpreted as an integer", val_type(a->v[i]));
    return n;
}

bool arg_bool(struct vm *vm, const struct args *a, uint32_t i, bool def)
{
    return arg_given(a, i) ? val_truthy(vm, a->v[i]) : def;
}
