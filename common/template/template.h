/* template.h - chat templates: Jinja as transformers runs it (trim_blocks and lstrip_blocks on, loop
 * controls, the sandbox's limits, tojson with ensure_ascii=False, raise_exception, strftime_now,
 * generation blocks ignored).
 *
 * A template comes with a model, so it is foreign code: rendering is bounded in steps, memory, output
 * and recursion, and can reach nothing but the variables given. Immutable after compile; any number of
 * threads may render one. */
#ifndef COMMON_TEMPLATE_TEMPLATE_H
#define COMMON_TEMPLATE_TEMPLATE_H
#include "common/buf.h"
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stdint.h>

struct template;

/* ERR_TEMPLATE with TGI's wording ("syntax error: ... (in <string>:LINE)"). Caller owns. */
struct template *template_compile(const char *src, size_t n, struct err *e);
void template_free(struct template *t); /* NULL is fine */
/* True if the template's source mentions the name as an identifier (e.g. "tools"). */
bool template_mentions(const struct template *t, const char *name);

struct template_limits {
    uint64_t max_steps;  /* evaluated nodes and loop turns; 0: 10 million */
    size_t max_memory;   /* bytes of live values; 0: 64 MiB */
    size_t max_output;   /* bytes; 0: 16 MiB */
    int64_t now;         /* Unix seconds for strftime_now (local time); 0: the clock */
};

/* Render with the members of the JSON object `vars` as global variables (key order kept; integers stay
 * integers) and append to `out`. raise_exception(msg), undefined attributes of undefined, type errors:
 * ERR_TEMPLATE with the message. `limits` may be NULL. */
int template_render(const struct template *t, const cJSON *vars, const struct template_limits *limits,
                    struct buf *out, struct err *e);
#endif
