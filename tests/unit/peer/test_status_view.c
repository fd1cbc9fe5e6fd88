/* status_view: what a person sees of a status, and that nothing in it reaches the terminal raw. */
#include "tests/check.h"

#include "base/json.h"
#include "base/mem.h"
#include "peer/watch/status_view.h"

static void print(const char *status, size_t columns, size_t lines, char *text, size_t cap)
{
    FILE *file = tmpfile();
    struct json *json = NULL;
    struct fault why;
    size_t count;

    assert_non_null(file);
    assert_int_equal(json_parse(status, strlen(status), &json, &why), RC_OK);
    status_print(file, json, columns, lines);
    json_destroy(json);
    rewind(file);
    count = fread(text, 1, cap - 1, file);
    text[count] = '\0';
    fclose(file);
    assert_int_equal(mem_blocks(), 0);
}

static const char members[] =
    "{\"peer\":\"p\",\"address\":\"a:1\",\"state\":\"training\",\"nat\":\"public\",\"step\":12,"
    "\"members_count\":9,\"members\":["
    "{\"id\":\"abcdefghijkl\",\"address\":\"192.0.2.1:7077\",\"state\":\"alive\",\"nat\":"
    "\"unknown\","
    "\"rtt_ms\":1.5,\"bytes_sent\":1048576,\"score\":-1,\"last_failure\":\"the link was lost\"},"
    "{\"id\":\"two\",\"rtt_ms\":null},{\"id\":\"three\"},{\"id\":\"four\"}]}";

static void members_are_rows_with_all_that_is_known(void **state)
{
    /* Id, address, state, NAT class, round trip, bytes, score and the reason; a dash where nothing
     * is known, and how many are not shown. */
    char text[8192];

    (void)state;
    print(members, 0, 0, text, sizeof text);
    assert_non_null(
        strstr(text, "abcdefgh  192.0.2.1:7077         alive    unknown            1.50"));
    assert_non_null(strstr(text, "1.0 MiB"));
    assert_non_null(strstr(text, "-1.0  the link was lost\n"));
    assert_non_null(strstr(text, "\ntwo       -                      -        -"));
    assert_non_null(strstr(text, "and 5 more\n"));
    assert_non_null(strstr(text, "step 12, loss -"));
    print("{}", 0, 0, text, sizeof text);
    assert_non_null(strstr(text, "members    none\n"));
}

static void sites_are_shown_where_the_peer_is_at_one(void **state)
{
    /* As a column; who says nothing has a dash, and without a site of its own there is none. */
    char text[8192];

    (void)state;
    print("{\"peer\":\"p\",\"site\":\"berlin\",\"members_count\":2,\"members\":["
          "{\"id\":\"a\",\"nat\":\"public\",\"site\":\"tokyo\"},{\"id\":\"b\"}]}",
          0, 0, text, sizeof text);
    assert_non_null(strstr(text, ", site berlin\n"));
    assert_non_null(strstr(text, "NAT           site               rtt ms"));
    assert_non_null(strstr(text, "public        tokyo                   -"));
    print(members, 0, 0, text, sizeof text);
    assert_null(strstr(text, "site"));
}

static void what_it_waits_for_and_its_own_steps_are_told(void **state)
{
    /* The goal counts a peer's own steps, which are not the model's; who waits does not train. */
    char text[8192];

    (void)state;
    print("{\"state\":\"waiting\",\"waits_for\":2,\"step\":0,\"own_steps\":0}", 0, 0, text,
          sizeof text);
    assert_non_null(strstr(text, "state      waiting for 2 more peers to begin, NAT"));
    assert_non_null(strstr(text, "step 0, loss"));
    print("{\"state\":\"training\",\"waits_for\":0,\"step\":5683,\"own_steps\":41,"
          "\"goal_steps\":5100}",
          0, 0, text, sizeof text);
    assert_non_null(strstr(text, "state      training, NAT"));
    assert_non_null(strstr(text, "step 5683 (own: 41 of 5100), loss"));
    print("{\"step\":5683,\"own_steps\":41,\"goal_steps\":null}", 0, 0, text, sizeof text);
    assert_non_null(strstr(text, "step 5683 (own: 41), loss"));
}

static void it_is_cut_to_the_terminal(void **state)
{
    /* No line is longer than asked for, none ends in a blank, and the rows fit. */
    char text[8192], *line;
    unsigned lines = 0;

    (void)state;
    print(members, 30, 11, text, sizeof text);
    for (line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) <= 30 && line[strlen(line) - 1] != ' ');
        lines++;
    }
    assert_true(lines <= 11);
}

static void a_narrow_terminal_shows_all_of_it(void **state)
{
    /* 80 columns: nothing is cut, the reason stands below; 12 lines: a reason counts as a line. */
    char text[8192], *line;

    (void)state;
    print(members, 80, 24, text, sizeof text);
    assert_non_null(strstr(
        text, "abcdefgh 192.0.2.1:7077        alive   unknown    1.50   1.0 MiB       0 B  -1.0\n"
              "         last round failed: the link was lost\n"
              "two      -  "));
    for (line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) <= 80);
    }
    print(members, 80, 12, text, sizeof text);
    assert_non_null(strstr(text, "lost\nand 8 more\n"));
}

static void control_bytes_of_others_are_not_obeyed(void **state)
{
    /* An escape sequence in a member's address, line ends, and bytes beyond ASCII. */
    char text[8192];

    (void)state;
    print("{\"peer\":\"\\u001b[2J\\u0007\\n\\u00e9\",\"members\":[{\"id\":\"\\u009b\"}]}", 0, 0,
          text, sizeof text);
    for (const char *c = text; *c != '\0'; c++) {
        assert_true(*c == '\n' || (*c >= ' ' && *c <= '~'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_rows_with_all_that_is_known),
        cmocka_unit_test(sites_are_shown_where_the_peer_is_at_one),
        cmocka_unit_test(what_it_waits_for_and_its_own_steps_are_told),
        cmocka_unit_test(it_is_cut_to_the_terminal),
        cmocka_unit_test(a_narrow_terminal_shows_all_of_it),
        cmocka_unit_test(control_bytes_of_others_are_not_obeyed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
