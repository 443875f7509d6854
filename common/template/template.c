#include "common/template/template.h"
#include "common/template/eval.h"
#include "common/template/import.h"
#include "common/utf8.h"
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SOURCE = 4 << 20,
    MAX_COMPILED = 128 << 20,
    PARSE_DEPTH = 700,
    EVAL_DEPTH = 1500,
};

/* -1: error in `e`. Everything a failed compilation leaves behind is in vm->mem. */
static int compile(struct vm *vm, struct template *t, const char *src, size_t n)
{
    if (setjmp(vm->on_fail))
        return -1;
    if (n > MAX_SOURCE)
        vm_fail(vm, FAULT_LIMIT, "a template of %zu bytes", n);
    if (!utf8_valid(src, n))
        vm_fail(vm, FAULT_SYNTAX, "the template is not UTF-8");
    parse_template(vm, t, src, n);
    return 0;
}

struct template *template_compile(const char *src, size_t n, struct err *e)
{
    struct vm vm = {.e = e, .max_depth = PARSE_DEPTH, .max_output = MAX_SOURCE, .line = 1};
    struct template *t = calloc(1, sizeof(*t));
    if (!t)
        return err_nomem(e), NULL;
    arena_init(&vm.mem, MAX_COMPILED);
    vm.steps = 100u << 20;
    if (compile(&vm, t, src, n) != 0) {
        arena_reset(&vm.mem);
        free(t);
        return NULL;
    }
    t->mem = vm.mem;
    return t;
}

void template_free(struct template *t)
{
    if (t)
        arena_reset(&t->mem);
    free(t);
}

bool template_mentions(const struct template *t, const char *name)
{
    size_t n = strlen(name);
    for (uint32_t i = 0; i < t->n_names; i++)
        if (t->names[i].n == n && !memcmp(t->names[i].p, name, n))
            return true;
    return false;
}

static void bind_globals(struct vm *vm, const cJSON *vars)
{
    const struct template *t = vm->t;
    struct val all = val_from_json(vm, vars);
    vm->root = VM_NEW(vm, struct val, t->n_names);
    for (uint32_t i = 0; i < t->n_names; i++) {
        const struct val *v = NULL;
        if (all.type == V_DICT)
            v = dict_find(vm, all.d, t->names[i].p, t->names[i].n);
        vm->root[i] = v ? *v : vm_global(vm, t->names[i].p, t->names[i].n);
    }
}

static int render(struct vm *vm, const cJSON *vars)
{
    if (setjmp(vm->on_fail))
        return -1;
    bind_globals(vm, vars);
    sb_reserve(vm, vm->out, 4096 < vm->max_output ? 4096 : vm->max_output);
    exec(vm, &vm->t->body);
    return 0;
}

int template_render(const struct template *t, const cJSON *vars,
                    const struct template_limits *limits, struct buf *out, struct err *e)
{
    static const struct template_limits none = {0};
    const struct template_limits *l = limits ? limits : &none;
    struct strbuf text = {0};
    struct vm vm = {.e = e, .t = t, .out = &text, .line = 1, .max_depth = EVAL_DEPTH};
    vm.bare_errors = l->bare_errors;
    vm.steps = l->max_steps ? l->max_steps : 10000000;
    vm.max_output = l->max_output ? l->max_output : 16u << 20;
    arena_init(&vm.mem, l->max_memory ? l->max_memory : 64u << 20);
    if (l->now)
        vm.now.tv_sec = l->now;
    else
        clock_gettime(CLOCK_REALTIME, &vm.now);
    int rc = render(&vm, vars);
    if (rc == 0) {
        buf_add(out, text.p, text.n);
        rc = out->oom ? err_nomem(e) : 0;
    }
    link_patterns_free(vm.links);
    arena_reset(&vm.mem);
    return rc;
}
