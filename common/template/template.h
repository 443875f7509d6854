/* template.h - chat templates: Jinja as configured by transformers (trim_blocks and lstrip_blocks,
 * loop controls, the immutable sandbox, tojson with ensure_ascii=False, raise_exception,
 * strftime_now, generation blocks rendered as their body).
 *
 * A template comes with a model, so it is untrusted code. Rendering is limited in steps, memory,
 * output and recursion, and can access only the given variables. Immutable after compilation; any
 * number of threads may render it. A render needs up to 1 MiB of stack.
 *
 * Intended differences from Jinja: integers have at most 4,300 digits; include, import and extends
 * are unknown tags; objects without a text form (functions, generators) print no address. */
#ifndef COMMON_TEMPLATE_TEMPLATE_H
#define COMMON_TEMPLATE_TEMPLATE_H
#include "common/buf.h"
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stdint.h>

struct template;

/* ERR_TEMPLATE with TGI's message ("syntax error: ... (in <string>:LINE)"). Caller owns the
 * result. */
struct template *template_compile(const char *src, size_t n, struct err *e);
void template_free(struct template *t); /* NULL is allowed */
/* True if the source contains the name as an identifier ("tools"). */
bool template_mentions(const struct template *t, const char *name);

struct template_limits {
    uint64_t max_steps; /* evaluated nodes, loop iterations, 64 bytes of text each; 0: 10 million */
    size_t max_memory;  /* bytes of live values; 0: 64 MiB */
    size_t max_output;  /* bytes of any one string; 0: 16 MiB */
    int64_t now;        /* Unix seconds for strftime_now (local time); 0: the current time */
    bool bare_errors;   /* messages as Python prints them, without kind and line */
};

/* Renders with the members of the JSON object `vars` as global variables (in order; the last of
 * equal keys counts), and appends to `out`. ERR_TEMPLATE with the message for raise_exception(msg),
 * attributes of undefined values, type errors and exceeded limits; then `out` is unchanged.
 * `limits` may be NULL. */
int template_render(const struct template *t, const cJSON *vars,
                    const struct template_limits *limits, struct buf *out, struct err *e);

/* cJSON drops the spelling of numbers, but 2.0 must print as 2.0, and 12345678901234567890 in full.
 * Given the text from which `tree` was parsed, this stores the spelling of such numbers in
 * `valuestring` (handled by cJSON_Delete and cJSON_Duplicate, ignored by the printers), for
 * template_render(). Without it integral numbers are integers, exact up to 2^53. */
void template_keep_numbers(cJSON *tree, const char *text, size_t n);
#endif
