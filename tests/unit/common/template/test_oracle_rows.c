/* What jinja2 3.1 makes of these, with the settings of transformers: made by tests/golden's oracle,
 * kept as a table. "!": both fail. */
#include "common/json/json.h"
#include "common/template/chat.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

static const char vars_text[] =
    "{\"s\":\"h\xc3\xa9llo\",\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":2.0,\"items\":5},\"big\":"
    "12345678901234567890,\"x\":null,\"two\":2.0,\"e\":1e-07}";

static const struct {
    const char *source, *want;
} rows[] = {
    {"{{ 2**64 }} {{ 2**200 }} {{ -(2**63) }} {{ 2**63 - 1 }} {{ 9223372036854775807 + 1 }}",
     "18446744073709551616 1606938044258990275541962092341162602522202993782792835301376 "
     "-9223372036854775808 9223372036854775807 9223372036854775808"},
    {"{{ big * big }} {{ big - big }} {{ big + 1 - big }} {{ -big // 7 }} {{ -big % 7 }} {{ big // "
     "-1000000007 }} {{ big % -1000000007 }}",
     "152415787532388367501905199875019052100 0 1 -1763668414462081128 6 -12345678815 -185183815"},
    {"{{ 3**300 // 7**80 }} {{ 3**300 % 7**80 }} {{ (-3)**301 // 7**80 }} {{ (3**300) % -(7**80) "
     "}}",
     "3377016750133720659689357259717047938544549845152071088009965267743726334824 "
     "26153300225094996968843782009186242596246536675187539562335951079177 "
     "-10131050250401161979068071779151143815633649535456213264029895803231179004474 "
     "-14382915372049389863222084099830431204628685575824544183856503368824"},
    {"{{ big / 10 }} {{ big * 1.5 }} {{ 2**64 == 2.0**64 }} {{ 2**64 > 1e30 }} {{ 2**70 > 2**69 }} "
     "{{ 10**20 == 1e20 }}",
     "1.2345678901234568e+18 1.851851835185185e+19 True False True True"},
    {"{{ '%d' % (2**70) }} {{ '%x' % 2**70 }} {{ '%x' % (2**70) }} {{ '{:,}'.format(2**70) }} {{ "
     "'{:#X}'.format(2**70) }} {{ '%030d' % -(2**70) }} {{ '{:b}'.format(2**66) }}",
     "1180591620717411303424 400000000000000000 400000000000000000 1,180,591,620,717,411,303,424 "
     "0X400000000000000000 -00000001180591620717411303424 "
     "1000000000000000000000000000000000000000000000000000000000000000000"},
    {"{{ 'ffffffffffffffffffff'|int(base=16) }} {{ '99999999999999999999'|int + 1 }} {{ 1e25|int "
     "}} {{ 0xffffffffffffffffffff }} {{ (2**70)|abs }} {{ (-(2**70))|abs }} {{ [2**63, 1]|sum }}",
     "1208925819614629174706175 100000000000000000000 10000000000000000905969664 "
     "1208925819614629174706175 1180591620717411303424 1180591620717411303424 9223372036854775809"},
    {"{{ 2**64|int }} {{ (2**64)|float }} {{ 1 - 2**64 }} {{ 2**64 * 0 }} {{ 2**64 // 2**64 }} {{ "
     "-(2**64) // 3 }} {{ 12345678901234567890123 ** 3 }} {{ (2**64)|string|length }}",
     "18446744073709551616 1.8446744073709552e+19 -18446744073709551615 0 1 -6148914691236517206 "
     "1881676372353657772546507175024128329807464576943069432557725290867 20"},
    {"{{ {'a': 'b c', 'x&': '/\xc3\xa9'}|urlencode }} {{ 'a b/c?'|urlencode }} {{ [('a', 1), ('b', "
     "none)]|urlencode }} {{ 2.5|urlencode }}",
     "a=b+c&x%26=%2F%C3%A9 a%20b/c%3F a=1&b=None 2.5"},
    {"{{ {'id': 'x\"y', 'n': none, 'v': 1, 'k<': true}|xmlattr }}|{{ {'a': 1}|xmlattr(false) }}|{{ "
     "{}|xmlattr }}",
     " id=\"x&#34;y\" v=\"1\" k&lt;=\"True\"|a=\"1\"|"},
    {"{{ ' <b>x</b> <!-- c > d -->\n y &amp; &lt;z&gt; &#39;q&#x41; <i'|striptags }}",
     "x y & <z> 'qA <i"},
    {"{{ 'The quick brown fox jumped over the lazy-dog and the "
     "extra-ordinarily-long-hyphenated-word, well -- so be it. "
     "supercalifragilisticexpialidocious'|wordwrap(20) }}",
     "The quick brown fox\njumped over the\nlazy-dog and "
     "the\nextra-ordinarily-\nlong-hyphenated-\nword, well -- so be\nit. "
     "supercalifragili\nsticexpialidocious"},
    {"{{ 'The quick brown fox jumped over the lazy-dog and the "
     "extra-ordinarily-long-hyphenated-word, well -- so be it. "
     "supercalifragilisticexpialidocious'|wordwrap(12, false) }}",
     "The quick\nbrown fox\njumped over\nthe lazy-dog\nand "
     "the\nextra-\nordinarily-\nlong-\nhyphenated-\nword, well\n-- so be "
     "it.\nsupercalifragilisticexpialidocious"},
    {"{{ 'The quick brown fox jumped over the lazy-dog and the "
     "extra-ordinarily-long-hyphenated-word, well -- so be it. "
     "supercalifragilisticexpialidocious'|wordwrap(15, true, '|', false) }}",
     "The quick brown|fox jumped over|the lazy-dog|and the "
     "extra-o|rdinarily-long-|hyphenated-word|, well -- so be|it. "
     "supercalifr|agilisticexpial|idocious"},
    {"{{ 'a\n\nb  c\n   d e'|wordwrap(3) }}", "a\n\nb\nc\nd e"},
    {"{{ 'The quick brown fox jumped over the lazy-dog and the "
     "extra-ordinarily-long-hyphenated-word, well -- so be it. "
     "supercalifragilisticexpialidocious'|wordwrap(7) }}",
     "The\nquick\nbrown\nfox\njumped\nover\nthe\nlazy-\ndog "
     "and\nthe\nextra-o\nrdinari\nly-\nlong-hy\nphenate\nd-word,\nwell --\nso be\nit. "
     "sup\nercalif\nragilis\nticexpi\nalidoci\nous"},
    {"{{ 'see http://example.com/a?b=1&c, (www.foo.org) x@y.org <https://a.b.com>. mailto:me@x.org "
     "1.2.3 foo.com'|urlize }}",
     "see <a href=\"http://example.com/a?b=1&amp;c\" "
     "rel=\"noopener\">http://example.com/a?b=1&amp;c</a>, (<a href=\"https://www.foo.org\" "
     "rel=\"noopener\">www.foo.org</a>) <a href=\"mailto:x@y.org\">x@y.org</a> &lt;<a "
     "href=\"https://a.b.com\" rel=\"noopener\">https://a.b.com</a>&gt;. <a "
     "href=\"mailto:me@x.org\">me@x.org</a> 1.2.3 <a href=\"https://foo.com\" "
     "rel=\"noopener\">foo.com</a>"},
    {"{{ 'http://example.com/a/long/path/that/goes/on'|urlize(20, true, '_blank', 'x y') }} {{ "
     "'http://1.2.3.4:80/ (http://a.com/(b))'|urlize }}",
     "<a href=\"http://example.com/a/long/path/that/goes/on\" rel=\"nofollow noopener x y\" "
     "target=\"_blank\">http://example.com/a...</a> <a href=\"http://1.2.3.4:80/\" "
     "rel=\"noopener\">http://1.2.3.4:80/</a> (<a href=\"http://a.com/(b)\" "
     "rel=\"noopener\">http://a.com/(b)</a>)"},
    {"{{ {'b': [1,2,3], 'a': 'x'}|pprint }}", "{'a': 'x', 'b': [1, 2, 3]}"},
    {"{{ {'b': range(40)|list, 'a': {'k': ['xxxxxxxxxxxxxxxxxxxxxxxxxxx']*3, 'c': (1,)}}|pprint }}",
     "{'a': {'c': (1,),\n       'k': ['xxxxxxxxxxxxxxxxxxxxxxxxxxx',\n             "
     "'xxxxxxxxxxxxxxxxxxxxxxxxxxx',\n             'xxxxxxxxxxxxxxxxxxxxxxxxxxx']},\n 'b': [0,\n   "
     "    1,\n       2,\n       3,\n       4,\n       5,\n       6,\n       7,\n       8,\n       "
     "9,\n       10,\n       11,\n       12,\n       13,\n       14,\n       15,\n       16,\n     "
     "  17,\n       18,\n       19,\n       20,\n       21,\n       22,\n       23,\n       24,\n  "
     "     25,\n       26,\n       27,\n       28,\n       29,\n       30,\n       31,\n       "
     "32,\n       33,\n       34,\n       35,\n       36,\n       37,\n       38,\n       39]}"},
    {"{% block a %}[{{ s }}]{% endblock %}{% block b %}x{% endblock b %}{% set q = 3 %}{% block c "
     "%}{{ q }}{% set q = 4 %}{% endblock %}{{ q }}",
     "[h\xc3\xa9llo]x33"},
    {"{% for i in l %}{% block z scoped %}{{ i }}{% endblock %}{% endfor %}{% for i in l %}{% "
     "block y %}({{ i }}){% endblock %}{% endfor %}",
     "312()()()"},
    {"{% autoescape true %}{{ '<a>' }}<b>{{ '<c>'|safe }}{{ s ~ ('<e>'|safe) ~ (s ~ '<') }}{% set "
     "v %}<f>{{ '<g>' }}{% endset %}{{ v }}{% endautoescape %}{{ '<h>' }}",
     "&lt;a&gt;<b><c>h\xc3\xa9llo<e>h\xc3\xa9llo&lt;<f>&lt;g&gt;<h>"},
    {"{% macro m(x) %}<i>{{ x }}{% endmacro %}{% autoescape true %}{{ m('<') }}{% macro n(x) "
     "%}<j>{{ x }}{% endmacro %}{{ n('<') }}{% endautoescape %}{% set w = '<' ~ s %}{% autoescape "
     "x %}{{ w }}{% endautoescape %}{% autoescape s %}{{ w }}{{ {'a':'<'}|xmlattr }}{% "
     "endautoescape %}",
     "<i><<j>&lt;<h\xc3\xa9llo&lt;h\xc3\xa9llo a=\"&lt;\""},
    {"{% block a %}{% endblock %}{% block a %}{% endblock %}", "!"},
    {"{{ big // 0 }}", "!"},
    {"{{ big % 0 }}", "!"},
    {"{{ (2**2000) / 3 }}", "!"},
    {"{{ 'x'|wordwrap(0) }}", "!"},
    {"{{ {'a b': 1}|xmlattr }}", "!"},
    {"{{ 1|xmlattr }}", "!"},
    {"{% block %}{% endblock %}", "!"},
    {"{{ 2 ** -70 }} {{ (2**70) ** -1 }} {{ 0 ** (2**70) }} {{ (-1) ** (2**70 + 1) }} {{ 7 ** 2 ** "
     "3 }}",
     "8.470329472543003e-22 8.470329472543003e-22 0 -1 117649"},
    {"{{ (2**70)|round }} {{ [2**70, 2**65, 1e30, 5]|sort }} {{ (2**70) in [2**70] }} {{ {2**70: "
     "1}[2**70] }} {{ (2**70)|tojson }}",
     "1180591620717411303424 [5, 36893488147419103232, 1180591620717411303424, 1e+30] True 1 "
     "1180591620717411303424"},
    {"{% filter upper %}{% autoescape true %}{{ '<' }}{% endautoescape %}{% endfilter %}", "&LT;"},
};

TEST(templates_render_as_jinja_does)
{
    struct err e = ERR_INIT;
    cJSON *vars = json_parse(vars_text, sizeof(vars_text) - 1, &e);
    assert_non_null(vars);
    template_keep_numbers(vars, vars_text, sizeof(vars_text) - 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out = BUF_INIT;
        struct template *t = template_compile(rows[i].source, strlen(rows[i].source), &e);
        bool ok = t && template_render(t, vars, NULL, &out, &e) == 0;
        const char *got = !ok ? "!" : out.p ? out.p : "";
        if (strcmp(got, rows[i].want) != 0)
            fail_msg("%s\n  want %s\n  got  %s %s", rows[i].source, rows[i].want, got,
                     ok ? "" : e.msg);
        template_free(t);
        buf_free(&out);
    }
    cJSON_Delete(vars);
}

int main(void) { return tests_run(NULL, NULL); }
