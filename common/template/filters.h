/* filters.h - Jinja's filters, in three parts: sequences, text and numbers, layout. filters.c has
 * the table. `self` is the value a filter is applied to.
 *
 * A row is a filter's name and its parameters in the order of their positions, as in Jinja's
 * documentation ("List of Builtin Filters"); "?" marks those with a default. NULL: any arguments,
 * which the filter checks. Results lie in the arena of the render; errors are raised by vm_fail(),
 * with Jinja's or Python's message. */
#ifndef COMMON_TEMPLATE_FILTERS_H
#define COMMON_TEMPLATE_FILTERS_H
#include "common/template/vm.h"

#define FILTER(name) struct val name(struct vm *vm, struct val self, const struct args *a)
#define SEQUENCE_FILTERS(X)                                                                        \
    X(attr, "name")                                                                                \
    X(batch, "linecount fill_with?")                                                               \
    X(default, "default_value? boolean?")                                                          \
    X(dictsort, "case_sensitive? by? reverse?")                                                    \
    X(first, "")                                                                                   \
    X(groupby, "attribute default? case_sensitive?")                                               \
    X(items, "")                                                                                   \
    X(join, "d? attribute?")                                                                       \
    X(last, "")                                                                                    \
    X(length, "")                                                                                  \
    X(list, "")                                                                                    \
    X(map, NULL)                                                                                   \
    X(max, "case_sensitive? attribute?")                                                           \
    X(min, "case_sensitive? attribute?")                                                           \
    X(reject, NULL)                                                                                \
    X(rejectattr, NULL)                                                                            \
    X(reverse, "")                                                                                 \
    X(select, NULL)                                                                                \
    X(selectattr, NULL)                                                                            \
    X(slice, "slices fill_with?")                                                                  \
    X(sort, "reverse? case_sensitive? attribute?")                                                 \
    X(sum, "attribute? start?")                                                                    \
    X(unique, "case_sensitive? attribute?")
#define TEXT_FILTERS(X)                                                                            \
    X(abs, "")                                                                                     \
    X(capitalize, "")                                                                              \
    X(center, "width?")                                                                            \
    X(escape, "")                                                                                  \
    X(filesizeformat, "binary?")                                                                   \
    X(float, "default?")                                                                           \
    X(forceescape, "")                                                                             \
    X(format, NULL)                                                                                \
    X(indent, "width? first? blank?")                                                              \
    X(int, "default? base?")                                                                       \
    X(lower, "")                                                                                   \
    X(replace, "old new count?")                                                                   \
    X(round, "precision? method?")                                                                 \
    X(safe, "")                                                                                    \
    X(string, "")                                                                                  \
    X(title, "")                                                                                   \
    X(tojson, "ensure_ascii? indent? separators? sort_keys?")                                      \
    X(trim, "chars?")                                                                              \
    X(truncate, "length? killwords? end? leeway?")                                                 \
    X(upper, "")                                                                                   \
    X(urlencode, "")                                                                               \
    X(wordcount, "")
#define LAYOUT_FILTERS(X)                                                                          \
    X(pprint, "verbose?")                                                                          \
    X(striptags, "")                                                                               \
    X(urlize, "trim_url_limit? nofollow? target? rel?")                                            \
    X(wordwrap, "width? break_long_words? wrapstring? break_on_hyphens?")                          \
    X(xmlattr, "autospace?")
#define X(name, params) FILTER(filter_##name);
SEQUENCE_FILTERS(X)
TEXT_FILTERS(X)
LAYOUT_FILTERS(X)
#undef X
#endif
