/* list_sort(): a stable merge sort with errors for values that have no order. */
#include "common/template/vm.h"
#include <string.h>

struct sort {
    struct vm *vm;
    struct val *k, *v, *tk, *tv;
    bool reverse;
};

/* Stable in both directions: only a strictly wrong order causes a move. */
static bool out_of_order(struct sort *s, struct val a, struct val b)
{
    bool unordered = false;
    int c =
        s->reverse ? val_cmp(s->vm, a, b, "<", &unordered) : -val_cmp(s->vm, b, a, "<", &unordered);
    return !unordered && (s->reverse ? c < 0 : c > 0);
}

static void merge_sort(struct sort *s, uint32_t from, uint32_t to)
{
    if (to - from < 2)
        return;
    uint32_t mid = from + (to - from) / 2, i = from, j = mid;
    merge_sort(s, from, mid);
    merge_sort(s, mid, to);
    for (uint32_t at = from; at < to; at++) {
        bool right = i == mid || (j < to && out_of_order(s, s->k[i], s->k[j]));
        uint32_t pick = right ? j++ : i++;
        s->tk[at] = s->k[pick];
        s->tv[at] = s->v[pick];
    }
    memcpy(s->k + from, s->tk + from, (to - from) * sizeof(*s->k));
    memcpy(s->v + from, s->tv + from, (to - from) * sizeof(*s->v));
}

void list_sort(struct vm *vm, struct val *keys, struct val *values, uint32_t n, bool reverse)
{
    struct sort s = {.vm = vm, .k = keys, .v = values, .reverse = reverse};
    s.tk = VM_NEW(vm, struct val, n + 1);
    s.tv = VM_NEW(vm, struct val, n + 1);
    merge_sort(&s, 0, n);
}
