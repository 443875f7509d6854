/* schema_format.c - `format` as patterns: a subset of each format. docs/decisions/constraints.md
 * lists what they exclude. */
#include "common/constraint/schema_impl.h"
#include <assert.h>
#include <string.h>

/* RFC 3339; years from 0001. */
#define YEAR "(?:\\d{3}[1-9]|\\d{2}[1-9]0|\\d[1-9]00|[1-9]000)"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|"  \
    "30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP "-02-29)"
#define SPLIT       "(?:\\.\\d{1,30})?"
#define OFFSET      "(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define TIME        "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d" SPLIT OFFSET
#define LEAP_SECOND "23:59:60" SPLIT "(?:[Zz]|[+-]00:00)"

#define DAY   "\\d{4}-\\d\\d-\\d\\d"
#define CLOCK "\\d\\d:\\d\\d:\\d\\d" ANY
#define ANY   "[\\d\\D]+"

#define COUNT "\\d{1,9}"
#define HOURS "T(?:" COUNT "H(?:" COUNT "M(?:" COUNT "S)?)?|" COUNT "M(?:" COUNT "S)?|" COUNT "S)"
#define DAYS  "(?:" COUNT "D|" COUNT "M(?:" COUNT "D)?|" COUNT "Y(?:" COUNT "M(?:" COUNT "D)?)?)"

/* RFC 1123, RFC 5321. */
#define LABEL   "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST    LABEL "(?:\\." LABEL "){0,10}"
#define ATEXT   "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define LOCAL   ATEXT "+(?:\\." ATEXT "+)*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\""
#define LITERAL "\\[(?:" IPV4 "|IPv6:" IPV6 ")\\]"
/* Letters allowed in any label, from left-to-right scripts. */
#define LETTER                                                                                     \
    "[a-z0-9\\u00e0-\\u00f6\\u00f8-\\u00ff\\u03b1-\\u03c9\\u0430-\\u045f\\u3041-\\u3096\\u30a1-"   \
    "\\u30fa\\u4e00-\\u9fff\\uac00-\\ud7a3]"
#define IDN_LABEL LETTER "{1,15}(?:-" LETTER "{1,15})?"
#define IDN_HOST  IDN_LABEL "(?:\\." IDN_LABEL "){0,3}"

/* RFC 4291, RFC 3986. */
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  OCTET "(?:\\." OCTET "){3}"
#define H16   "[0-9A-Fa-f]{1,4}"
#define LS32  "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"
#define PERCENT "%[0-9A-Fa-f]{2}"
#define ASCII   "A-Za-z0-9._~!$&'()*+,;=-"
#define UCS                                                                                        \
    "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}"
/* `more`: allowed characters besides ASCII, ending in a hyphen. */
#define CHAR(more, besides) "(?:[" besides more ASCII "]|" PERCENT ")"
#define AUTHORITY(more)                                                                            \
    "//(?:" CHAR(more, ":") "*@)?(?:\\[" IPV6 "\\]|" CHAR(more, "") "*)(?::\\d{0,5})?"
#define SEGMENTS(more) "(?:/" CHAR(more, ":@") "*)*"
#define ROOTED(more)   "/(?:" CHAR(more, ":@") "+" SEGMENTS(more) ")?"
#define TAIL(more)     "(?:\\?" CHAR(more, ":@/?") "*)?(?:#" CHAR(more, ":@/?") "*)?"
#define SCHEME         "[A-Za-z][A-Za-z0-9+.-]*:"
#define FULL(more)                                                                                 \
    SCHEME "(?:" AUTHORITY(more)                                                                   \
        SEGMENTS(more) "|" ROOTED(more) "|" CHAR(more, ":@") "+" SEGMENTS(more) "|)" TAIL(more)
#define RELATIVE(more)                                                                             \
    "(?:" AUTHORITY(more)                                                                          \
        SEGMENTS(more) "|" ROOTED(more) "|" CHAR(more, "@") "+" SEGMENTS(more) "|)" TAIL(more)

/* RFC 6570. */
#define VARCHAR  "(?:[A-Za-z0-9_]|" PERCENT ")"
#define VARIABLE VARCHAR "(?:\\.?" VARCHAR ")*(?:\\*|:[1-9]\\d{0,3})?"
#define TEMPLATE                                                                                   \
    "(?:[!#$&(-;=?-\\[\\]_a-z~" UCS "]|" PERCENT "|\\{[+#./;?&]?" VARIABLE "(?:," VARIABLE ")*\\}" \
    ")*"

#define POINTER "(?:/(?:[^/~]|~[01])*)*"

/* Regular expressions of ECMA-262, with at most one level of nested groups. */
#define PLAIN                                                                                      \
    "[A-Za-z0-9 "                                                                                  \
    "_@#%&=:;,<>!\"'`~-]|\\.|\\\\[dDwWsSnrtfv^$.*+?()\\[\\]{}|/\\\\]|\\[\\^?(?:a-z|A-Z|"           \
    "0-9|[A-Za-z0-9_ .,:;@/]|\\\\[dwsDWS])+\\]"
#define TIMES     "(?:(?:[*+?]|\\{\\d{1,3},?\\})[?]{0,1})?"
#define PART(a)   "(?:\\^?(?:(?:" a ")" TIMES ")*\\$?)"
#define CHOICE(a) PART(a) "(?:\\|" PART(a) ")*"
#define GROUP(a)  "\\((?:\\?:)?" a "\\)"
#define REGEX     CHOICE(PLAIN "|" GROUP(CHOICE(PLAIN "|" GROUP(CHOICE(PLAIN)))))

/* Every text of a format matches `beyond`, which may match others, too: `not` allows only the rest.
 * NULL: `pattern` excludes nothing; "": there is no such pattern. `most`: maximum number of
 * characters, also of `head`; 0: unlimited. */
static const struct {
    const char *name, *pattern, *beyond;
    const char *head; /* a prefix; NULL: none */
    uint32_t most, head_most;
} formats[] = {
    {"date", DATE, DAY, NULL, 0, 0},
    {"time", TIME "|" LEAP_SECOND, CLOCK, NULL, 0, 0},
    {"date-time", DATE "[Tt]" TIME "|" YEAR "-(?:06-30|12-31)[Tt]" LEAP_SECOND, DAY ANY, NULL, 0,
     0},
    {"duration", "P(?:" COUNT "W|" DAYS "(?:" HOURS ")?|" HOURS ")", "[Pp]" ANY, NULL, 0, 0},
    {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", NULL, NULL, 0, 0},
    {"email", "@(?:" HOST "|" LITERAL ")", ANY "@" ANY, LOCAL, 190, 64},
    {"idn-email", "@" IDN_HOST, ANY "@" ANY, LOCAL "|" LETTER "{1,15}", 0, 64},
    {"hostname", HOST, "[A-Za-z0-9._-]+", NULL, 253, 0},
    {"idn-hostname", IDN_HOST, "[^\\x00- !-,/:-@\\[-`{-\\x7f]+", NULL, 0, 0},
    {"ipv4", IPV4, NULL, NULL, 0, 0},
    {"ipv6", IPV6, NULL, NULL, 0, 0},
    {"uri", FULL(""), SCHEME "[!-~]*", NULL, 0, 0},
    {"uri-reference", FULL("") "|" RELATIVE(""), "[!-~]*", NULL, 0, 0},
    {"iri", FULL(UCS), SCHEME "[^\\x00- ]*", NULL, 0, 0},
    {"iri-reference", FULL(UCS) "|" RELATIVE(UCS), "[^\\x00- ]*", NULL, 0, 0},
    {"uri-template", TEMPLATE, "[^\\x00- \"<>\\\\^`]*", NULL, 0, 0},
    {"json-pointer", POINTER, NULL, NULL, 0, 0},
    {"relative-json-pointer", "(?:0|[1-9]\\d{0,8})(?:#|" POINTER ")", "\\d+(?:#|" POINTER ")", NULL,
     0, 0},
    {"regex", REGEX, "", NULL, 0, 0},
};

static term part(struct schema *s, const char *pattern, uint32_t most)
{
    term t = pattern_term(s->p, pattern, strlen(pattern), PATTERN_WHOLE, SPELL_JSON, s->e);
    return most ? term_and(s->p, t, term_repeat(s->p, s->char_once, 0, most)) : t;
}

/* The row of a format; -1: it describes meaning, not syntax. */
static int row_of(const cJSON *format)
{
    const char *name = cJSON_GetStringValue(format);
    for (size_t i = 0; name && i < sizeof(formats) / sizeof(*formats); i++)
        if (!strcmp(formats[i].name, name))
            return (int)i;
    return -1;
}

term schema_format(struct schema *s, const cJSON *format)
{
    const int i = row_of(format);
    if (i < 0)
        return TERM_EMPTY;
    term t = part(s, formats[i].pattern, formats[i].most);
    if (formats[i].head)
        t = term_cat(s->p, part(s, formats[i].head, formats[i].head_most), t);
    return t == TERM_NONE ? schema_fail(s, format, "this `format` is too complex") : t;
}

enum format_not schema_format_not(const cJSON *format)
{
    const int i = row_of(format);
    return i < 0                                      ? FORMAT_NEVER_VIOLATED
           : formats[i].beyond && !*formats[i].beyond ? FORMAT_NOT_DENIABLE
                                                      : FORMAT_DENIABLE;
}

term schema_not_format(struct schema *s, const cJSON *format)
{
    const int i = row_of(format);
    assert(schema_format_not(format) == FORMAT_DENIABLE);
    return term_not(s->p, formats[i].beyond ? part(s, formats[i].beyond, 0)
                                            : part(s, formats[i].pattern, 0));
}
