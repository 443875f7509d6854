/* template.h - chat templates: Jinja as transformers runs it (trim_blocks and lstrip_blocks on,
 * loop controls, the immutable sandbox, tojson with ensure_ascii=False, raise_exception,
 * strftime_now, generation blocks rendered as their body).
 *
 * A template comes with a model, so it is foreign code: rendering is bounded in steps, memory,
 * output and recursion, and can reach nothing but the variables given. Immutable after compile; any
 * number of threads may render one. A render needs up to 1 MiB of stack.
 *
 * Where it differs from Jinja on purpose: integers have at most 4,300 digits; include, import and
 * extends are unknown tags; objects without a text of their own (a function, a generator) print no
 * address. */
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
    uint64_t max_steps; /* evaluated nodes, loop turns, 64 bytes of text each; 0: 10 million */
    size_t max_memory;  /* bytes of live values; 0: 64 MiB */
    size_t max_output;  /* bytes of any one string; 0: 16 MiB */
    int64_t now;        /* Unix seconds for strftime_now (local time); 0: the clock */
    bool bare_errors;   /* messages as Python prints them, without kind and line */
};

/* Render with the members of the JSON object `vars` as global variables (key order kept, of equal
 * keys the last counts) and append to `out`. raise_exception(msg), attributes of undefined values,
 * type errors, spent limits: ERR_TEMPLATE with the message, and `out` is as it was. `limits` may be
 * NULL. */
int template_render(const struct template *t, const cJSON *vars,
                    const struct template_limits *limits, struct buf *out, struct err *e);

/* cJSON forgets how a number was written, but 2.0 must print as 2.0 and 12345678901234567890 in
 * full. Given the text that `tree` was parsed from, this keeps the spelling of such numbers in
 * their `valuestring` (cJSON_Delete and cJSON_Duplicate know what to do with it, the printers
 * ignore it), where template_render() finds it. Without it whole numbers are integers, up to 2^53
 * exactly. */
void template_keep_numbers(cJSON *tree, const char *text, size_t n);
#endif
