/* schema_format.c - `format` as patterns: what they describe is always of the format, even if the
 * format allows more. */
#include "common/constraint/schema_impl.h"
#include <string.h>

#define DAY                                                                                        \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0["  \
    "1-"                                                                                           \
    "9]|1\\d|2[0-8]))"
#define DATE "[1-9]\\d{3}-" DAY
#define TIME                                                                                       \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:0\\d|1[0-3]):[0-5]\\d)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(?:\\." LABEL "){0,3}"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define H16   "[0-9A-Fa-f]{1,4}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define PATH  "(?:/" PCHAR "*)*(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"

static const struct {
    const char *name, *pattern; /* NULL: it says nothing about texts */
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration",
     "P(?:\\d{1,4}W|(?:\\d{1,4}D|\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,4}Y(?:\\d{1,4}M(?:\\d{1,"
     "4}D)?)?)(?:T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,"
     "4}S))?|T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S))"},
    {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"email", "[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,15}){0,1}@" HOST},
    {"idn-email", "[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,15}){0,1}@" HOST},
    {"hostname", HOST},
    {"idn-hostname", HOST},
    {"ipv4", OCTET "(?:\\." OCTET "){3}"},
    {"ipv6", "(?:" H16 ":){7}" H16 "|(?:" H16 ":){1,6}:" H16 "|::(?:" H16 ":){0,5}" H16 "|::"},
    {"uri", "[a-z][a-z0-9+.-]{0,15}://" HOST "(?::[1-9]\\d{0,3})?" PATH},
    {"uri-reference", "(?:[a-z][a-z0-9+.-]{0,15}://" HOST ")?" PATH},
    {"iri", "[a-z][a-z0-9+.-]{0,15}://" HOST "(?::[1-9]\\d{0,3})?" PATH},
    {"json-pointer", "(?:/(?:[^/~]|~[01])*)*"},
    {"int32", NULL},
    {"int64", NULL},
    {"float", NULL},
    {"double", NULL},
    {"password", NULL},
    {"binary", NULL},
    {"byte", NULL},
};

term schema_format(struct schema *s, const cJSON *format)
{
    const char *name = cJSON_GetStringValue(format);
    for (size_t i = 0; name && i < sizeof(formats) / sizeof(*formats); i++) {
        const char *pattern = formats[i].pattern;
        if (strcmp(formats[i].name, name) != 0)
            continue;
        return pattern
                   ? pattern_term(s->p, pattern, strlen(pattern), PATTERN_WHOLE, SPELL_JSON, s->e)
                   : TERM_EMPTY;
    }
    return schema_fail(s, format, "this `format` is not supported");
}
