#include "common/template/filters.h"

static const struct builtin filters[] = {
#define X(name, params) {#name, filter_##name, params},
    SEQUENCE_FILTERS(X) TEXT_FILTERS(X) LAYOUT_FILTERS(X)
#undef X
        {"count", filter_length, ""},
    {"d", filter_default, "default_value? boolean?"},
    {"e", filter_escape, ""},
};

const struct builtin *filter_find(const char *name, size_t n)
{
    return builtin_find(filters, sizeof(filters) / sizeof(*filters), name, n);
}
