/* metrics_text: a status becomes lines that Prometheus can read, whatever words are in it. */
#include "tests/check.h"

#include "base/json.h"
#include "base/mem.h"
#include "peer/watch/metrics_text.h"

static char *metrics_of(const char *status)
{
    struct json *json = NULL;
    struct fault why;
    char *text;

    assert_int_equal(json_parse(status, strlen(status), &json, &why), RC_OK);
    text = metrics_text(json);
    json_destroy(json);
    assert_non_null(text);
    return text;
}

/* Each line is a comment of ours, or a name, perhaps labels, one blank and a number. */
static void assert_well_formed(const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        const char *end = text + length;

        assert_int_equal(*end, '\n');
        if (strncmp(text, "# ", 2) != 0) {
            const char *at = text + strspn(text, "abcdefghijklmnopqrstuvwxyz_");
            char *rest;

            assert_int_equal(strncmp(text, "grapevine_", 10), 0);
            if (*at == '{') {
                bool is_quoted = false;

                for (at++; *at != '}' || is_quoted; at++) {
                    assert_true(at < end);
                    if (*at == '"') is_quoted = !is_quoted;
                    if (*at == '\\') at++;
                }
                at++;
            }
            assert_int_equal(*at, ' ');
            (void)strtod(at + 1, &rest);
            assert_ptr_equal(rest, end);
        }
        text = end + 1;
    }
}

static void values_and_members_become_lines(void **state)
{
    /* Known values with type and help; null and absent ones not at all; round trips in seconds. */
    char *text = metrics_of("{\"peer\":\"abc\",\"run\":\"00\",\"state\":\"training\",\"step\":12,"
                            "\"loss\":null,\"rounds_ok\":3,\"alarms\":[\"alone\"],"
                            "\"abort_reasons\":{\"too late\":2,\"a \\\"b\\\"\":1},\"members\":["
                            "{\"id\":\"p\",\"state\":\"alive\",\"rtt_ms\":250,\"bytes_sent\":7},"
                            "{\"id\":\"q\",\"state\":\"dead\",\"rtt_ms\":null,\"bytes_sent\":0}]}");

    (void)state;
    assert_well_formed(text);
    assert_non_null(strstr(text, "# TYPE grapevine_step gauge\ngrapevine_step 12\n"));
    assert_non_null(strstr(text, "\ngrapevine_rounds_ok_total 3\n"));
    assert_non_null(strstr(text, "\ngrapevine_alarms 1\n"));
    assert_non_null(strstr(text, "\ngrapevine_rounds_failed_total{reason=\"too late\"} 2\n"));
    assert_non_null(strstr(text, "{reason=\"a \\\"b\\\"\"} 1\n"));
    assert_non_null(strstr(text, "\ngrapevine_members{state=\"alive\"} 1\n"));
    assert_non_null(strstr(text, "\ngrapevine_members{state=\"dead\"} 1\n"));
    assert_non_null(strstr(text, "\ngrapevine_member_rtt_seconds{id=\"p\"} 0.25\n"));
    assert_null(strstr(text, "rtt_seconds{id=\"q\"}"));
    assert_null(strstr(text, "grapevine_loss"));
    mem_free(text);
}

static void hostile_words_stay_inside_their_quotes(void **state)
{
    /* Quotation marks, line ends and backslashes of any number, and nothing at all. */
    char *text = metrics_of("{\"peer\":\"a\\\"} 1\\nevil 2\\\\\",\"members\":"
                            "[{\"id\":\"\\n\\n\\\"\\\"\\\\\\\\x\",\"rtt_ms\":1},{}]}");
    char long_name[4000], status[4200];

    (void)state;
    assert_well_formed(text);
    assert_non_null(strstr(text, "{peer=\"a\\\"} 1\\\\x0aevil 2\\\\\",run=\"\""));
    mem_free(text);
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    snprintf(status, sizeof status, "{\"peer\":\"%s\",\"members\":[{\"id\":\"%s\"}]}", long_name,
             "i");
    text = metrics_of(status);
    assert_well_formed(text);
    mem_free(text);
    text = metrics_of("{}");
    assert_well_formed(text);
    mem_free(text);
    assert_int_equal(mem_blocks(), 0);
}

static void a_lack_of_memory_is_no_text(void **state)
{
    /* Each allocation in turn. */
    struct json *json = json_object_create();
    struct json *members = json_array_create();

    (void)state;
    for (int i = 0; i < 200; i++) {
        struct json *member = json_object_create();

        json_set_text(member, "id", "0123456789");
        json_set_real(member, "rtt_ms", i);
        json_append(members, member);
    }
    json_set(json, "members", members);
    for (uint64_t n = 0; n < 3; n++) {
        mem_fail_after(n);
        assert_null(metrics_text(json));
    }
    mem_fail_after(UINT64_MAX);
    json_destroy(json);
    assert_int_equal(mem_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_members_become_lines),
        cmocka_unit_test(hostile_words_stay_inside_their_quotes),
        cmocka_unit_test(a_lack_of_memory_is_no_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
