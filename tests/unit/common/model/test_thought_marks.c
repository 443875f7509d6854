/* Which markers a chat template has around reasoning. */
#include "common/model/thought_marks.h"
#include "tests/unit/test.h"

TEST(a_template_names_them)
{
    static const struct {
        const char *source;
        bool found;
        enum thought_marks marks;
    } rows[] = {
        {"{{ content.split('</think>')[-1] }}", true, THOUGHT_THINK},
        {"{{- '<|assistant|>\\n<think>\\n' }}", true, THOUGHT_THINK},
        {"[THINK]Your thoughts[/THINK]", true, THOUGHT_BRACKET},
        {"{{- '<|channel>thought\\n<channel|>' -}}", true, THOUGHT_CHANNEL},
        {"<|START_THINKING|>{{ message.tool_plan }}<|END_THINKING|>", true, THOUGHT_COMMAND},
        {"{{ think_begin }} <seed:think>", true, THOUGHT_SEED},
        {"◁think▷", true, THOUGHT_KIMI},
        {"{%- set think = '<mm:think>' %}", true, THOUGHT_MINIMAX},
        {"{%- set HYTK = ':opensource' %}{{ '<think{}>'.format(HYTK) }}", true, THOUGHT_HY3},
        {"{%- set HYTK = ':6124c78e' %}{{ '<think{}>'.format(HYTK) }}", true, THOUGHT_HY4},
        {"{{ '<|begin|>assistant<|think|>' + m.reasoning + '<|end|>' }}", true, THOUGHT_SOLAR},
        {"{{ '<|think:start|><|think:end|>' }}", true, THOUGHT_SOLAR2},
        {"<|channel|>analysis<|message|> {{ content }}<|end|>", false, THOUGHT_THINK},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum thought_marks marks = THOUGHT_THINK;
        assert_int_equal(thought_marks_find(rows[i].source, &marks), rows[i].found);
        assert_int_equal(marks, rows[i].marks);
    }
}

int main(void) { return tests_run(NULL, NULL); }
