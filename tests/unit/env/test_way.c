/* way: the flags, the words of a command, and conversations with proxies, by their bytes. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "peer/env/way.h"

#include <stdio.h>
#include <string.h>

static enum rc parse(const char *proxy, const char *command, struct way *way, struct fault *why)
{
    return way_parse(&(struct way_flags){.proxy = proxy, .dial_command = command}, way, why);
}

static void a_url_names_a_proxy(void **state)
{
    static const struct {
        const char *url;
        enum way_kind kind;
        const char *host, *port, *user, *password;
    } good[] = {
        {"socks5://10.0.0.1:1080", WAY_SOCKS5, "10.0.0.1", "1080", "", ""},
        {"socks5h://proxy.example:1", WAY_SOCKS5, "proxy.example", "1", "", ""},
        {"http://[2001:db8::1]:3128/", WAY_HTTP, "2001:db8::1", "3128", "", ""},
        {"http://a:b@c:8080", WAY_HTTP, "c", "8080", "a", "b"},
        {"http://a%40x:p%3a%20q@c:8080", WAY_HTTP, "c", "8080", "a@x", "p: q"},
        {"socks5://a@c:8080", WAY_SOCKS5, "c", "8080", "a", ""},
    };
    static const char *const bad[] = {
        "",
        "10.0.0.1:1080",
        "https://a:1",
        "socks4://a:1",
        "socks5://",
        "socks5://a",
        "socks5://a:0",
        "socks5://a:99999",
        "socks5://a:1/path",
        "socks5://:b@a:1",
        "http://a%3Ax:b@c:1",
        "http://a%0:b@c:1",
        "http://a%00:b@c:1",
        "http://a%zz:b@c:1",
        "socks5://a b:1",
    };
    char longest[WAY_SECRET_BYTES + 64], text[300];
    struct way way;
    struct fault why;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        assert_int_equal(parse(good[i].url, NULL, &way, &why), RC_OK);
        assert_int_equal(way.kind, good[i].kind);
        assert_string_equal(way.proxy.host, good[i].host);
        assert_string_equal(way.proxy.port_text, good[i].port);
        assert_string_equal(way.user, good[i].user);
        assert_string_equal(way.password, good[i].password);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(parse(bad[i], NULL, &way, &why), RC_USAGE);
    }
    snprintf(longest, sizeof longest, "http://%0*d@c:1", WAY_SECRET_BYTES, 7);
    assert_int_equal(parse(longest, NULL, &way, &why), RC_USAGE);
    assert_int_equal(parse("http://a:hush@c:x", NULL, &way, &why), RC_USAGE);
    assert_null(strstr(why.text, "hush"));
    assert_int_equal(parse("http://a:hush@[::1]:8080", NULL, &way, &why), RC_OK);
    way_describe(&way, text, sizeof text);
    assert_string_equal(text, "the HTTP proxy [::1]:8080");
    assert_int_equal(parse(NULL, NULL, &way, &why), RC_OK);
    assert_int_equal(way.kind, WAY_DIRECT);
    assert_int_equal(parse("socks5://a:1", "nc %h %p", &way, &why), RC_USAGE);
}

static void a_command_has_words_and_no_shell(void **state)
{
    static const char *const bad[] = {"", "nc host %p", "nc %h 7077", "nc %h %p %", "nc %h %p %x"};
    struct address target = {.host = "b-1.example", .port_text = "7077", .port = 7077};
    char room[WAY_WORDS_BYTES], many[2 * WAY_WORDS_MAX + 16], *words[WAY_WORDS_MAX + 1];
    char longest[WAY_COMMAND_BYTES + 8];
    struct way way;
    struct fault why;

    (void)state;
    assert_int_equal(parse(NULL, "  ssh -W  %h:%p\t100%%;$(x) ", &way, &why), RC_OK);
    assert_int_equal(way_command_words(&way, &target, room, words), RC_OK);
    assert_string_equal(words[0], "ssh");
    assert_string_equal(words[1], "-W");
    assert_string_equal(words[2], "b-1.example:7077");
    assert_string_equal(words[3], "100%;$(x)");
    assert_null(words[4]);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(parse(NULL, bad[i], &way, &why), RC_USAGE);
    }
    for (size_t i = 0; i < sizeof many; i++) {
        many[i] = i % 2 == 0 ? 'x' : ' ';
    }
    memcpy(many, "%h%p", 4); /* one word, with the x after it */
    many[2 * (WAY_WORDS_MAX + 2)] = '\0';
    assert_int_equal(parse(NULL, many, &way, &why), RC_OK);
    many[2 * (WAY_WORDS_MAX + 2)] = 'x';
    many[2 * (WAY_WORDS_MAX + 3)] = '\0';
    assert_int_equal(parse(NULL, many, &way, &why), RC_USAGE);
    snprintf(longest, sizeof longest, "%%h %%p %0*d", WAY_COMMAND_BYTES - 6, 1);
    assert_int_equal(parse(NULL, longest, &way, &why), RC_USAGE);
    memset(longest, 0, sizeof longest); /* few bytes that become many */
    for (int i = 0; i < 20; i++) {
        memcpy(longest + (size_t)i * 4, "%h%p", 4);
    }
    assert_int_equal(parse(NULL, longest, &way, &why), RC_USAGE);
}

/* ---- conversations ---- */

struct turn {
    const char *hears;
    size_t hears_count;
    const char *says;
    size_t says_count;
};
#define TURN(hears_, says_)                                                                        \
    {                                                                                              \
        .hears = (hears_), .hears_count = sizeof(hears_) - 1, .says = (says_),                     \
        .says_count = sizeof(says_) - 1                                                            \
    }

static void begin(struct way_talk *talk, struct way *way, const char *url, const char *target)
{
    struct address address;
    struct fault why;

    assert_int_equal(parse(url, NULL, way, &why), RC_OK);
    assert_int_equal(address_parse(target, &address), RC_OK);
    way_talk_begin(talk, way, &address);
}

static void assert_said(struct way_talk *talk, const char *says, size_t count)
{
    assert_int_equal(talk->say_count, count);
    assert_memory_equal(talk->say, says, count);
    talk->say_count = 0;
}

/* In pieces of each size: what is heard does not depend on how it comes. */
static void converse(const char *url, const char *target, const struct turn *turns, size_t count)
{
    for (size_t piece = 1; piece < 64; piece++) {
        struct way way;
        struct way_talk talk;

        begin(&talk, &way, url, target);
        for (size_t t = 0; t < count; t++) {
            const char *why = NULL;

            for (size_t at = 0; at < turns[t].hears_count; at += piece) {
                size_t left = turns[t].hears_count - at;

                assert_int_equal(talk.state == WAY_OPEN, false);
                assert_int_equal(way_talk_hear(&talk, (const uint8_t *)turns[t].hears + at,
                                               left < piece ? left : piece, &why),
                                 RC_OK);
            }
            assert_said(&talk, turns[t].says, turns[t].says_count);
        }
        assert_int_equal(talk.state, WAY_OPEN);
    }
}

static void proxies_put_through(void **state)
{
    static const struct turn plain[] = {
        TURN("", "\5\1\0"),
        TURN("\5\0", "\5\1\0\1\xc0\0\2\7\x1b\xa5"),
        TURN("\5\0\0\1\0\0\0\0\0\0", ""),
    };
    static const struct turn named[] = {
        TURN("", "\5\2\0\2"),
        TURN("\5\2", "\1\2me\6secret"),
        TURN("\1\0", "\5\1\0\3\11b.example\x1b\xa5"),
        TURN("\5\0\0\3\3abc\0\1", ""),
    };
    static const struct turn six[] = {
        TURN("", "\5\1\0"),
        TURN("\5\0", "\5\1\0\4\x20\1\xd\xb8\0\0\0\0\0\0\0\0\0\0\0\1\x1b\xa5"),
        TURN("\5\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", ""),
    };
    static const struct turn http[] = {
        TURN("", "CONNECT b.example:7077 HTTP/1.1\r\nHost: b.example:7077\r\n\r\n"),
        TURN("HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n", ""),
    };
    static const struct turn secret[] = {
        TURN("", "CONNECT [2001:db8::1]:7077 HTTP/1.1\r\nHost: [2001:db8::1]:7077\r\n"
                 "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"),
        TURN("HTTP/1.1 200 \n\n", ""),
    };

    (void)state;
    converse("socks5://p:1", "192.0.2.7:7077", plain, ARRAY_COUNT(plain));
    converse("socks5://me:secret@p:1", "b.example:7077", named, ARRAY_COUNT(named));
    converse("socks5://p:1", "[2001:db8::1]:7077", six, ARRAY_COUNT(six));
    converse("http://p:1", "b.example:7077", http, ARRAY_COUNT(http));
    converse("http://me:secret@p:1", "[2001:db8::1]:7077", secret, ARRAY_COUNT(secret));
}

static void a_proxy_that_says_no_or_nonsense_ends_the_dial(void **state)
{
    static const struct {
        const char *url, *first; /* what it answers to the greeting, "": nothing */
        size_t first_count;
        const char *then;
        size_t then_count;
        enum rc rc;
        const char *why;
    } cases[] = {
#define CASE(url_, first_, then_, rc_, why_)                                                       \
    {url_, first_, sizeof(first_) - 1, then_, sizeof(then_) - 1, rc_, why_}
        CASE("socks5://p:1", "", "\4\0", RC_FORMAT, "does not speak SOCKS5"),
        CASE("socks5://p:1", "", "HTTP/1.1 400", RC_FORMAT, "does not speak SOCKS5"),
        CASE("socks5://p:1", "", "\5\xff", RC_AUTH, "wants a name and password"),
        CASE("socks5://a:b@p:1", "", "\5\xff", RC_AUTH, "neither"),
        CASE("socks5://p:1", "", "\5\2", RC_FORMAT, "not offered"),
        CASE("socks5://p:1", "", "\5\1", RC_FORMAT, "not offered"),
        CASE("socks5://a:b@p:1", "\5\2", "\1\1", RC_AUTH, "does not take the name"),
        CASE("socks5://a:b@p:1", "\5\2", "\5\0", RC_FORMAT, "does not speak SOCKS5"),
        CASE("socks5://p:1", "", "\5\0\5\0", RC_FORMAT, "more than an answer"),
        CASE("socks5://p:1", "\5\0", "\5\1", RC_IO, "the proxy failed"),
        CASE("socks5://p:1", "\5\0", "\5\2\0\1", RC_REFUSED, "forbids"),
        CASE("socks5://p:1", "\5\0", "\5\5\0\1", RC_REFUSED, "refused"),
        CASE("socks5://p:1", "\5\0", "\5\6", RC_TIMEOUT, "no answer"),
        CASE("socks5://p:1", "\5\0", "\5\x63", RC_FORMAT, "no known reason"),
        CASE("socks5://p:1", "\5\0", "\5\0\0\2", RC_FORMAT, "does not speak SOCKS5"),
        CASE("socks5://p:1", "\5\0", "\5\0\0\1\0\0\0\0\0\0G", RC_FORMAT, "more than an answer"),
        CASE("http://p:1", "", "SSH-2.0-x", RC_FORMAT, "no HTTP proxy"),
        CASE("http://p:1", "", "HTTP/2.0 200", RC_FORMAT, "no HTTP proxy"),
        CASE("http://p:1", "", "HTTP/1.1 2x0", RC_FORMAT, "no HTTP proxy"),
        CASE("http://p:1", "", "HTTP/1.1 407 no\r\n\r\n", RC_AUTH, "wants a name and password"),
        CASE("http://a:b@p:1", "", "HTTP/1.1 407 no\r\n\r\n", RC_AUTH, "does not take the name"),
        CASE("http://p:1", "", "HTTP/1.1 403 no\r\n\r\n", RC_REFUSED, "port 443"),
        CASE("http://p:1", "", "HTTP/1.1 502 no\r\n\r\n", RC_IO, "cannot reach"),
        CASE("http://p:1", "", "HTTP/1.1 504 no\r\n\r\n", RC_TIMEOUT, "no answer"),
        CASE("http://p:1", "", "HTTP/1.1 302 no\r\n\r\n", RC_FORMAT, "refuses"),
        CASE("http://p:1", "", "HTTP/1.1 200 ok\r\n\r\nx", RC_FORMAT, "more than an answer"),
#undef CASE
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct way way;
        struct way_talk talk;
        const char *why = NULL;

        begin(&talk, &way, cases[i].url, "b.example:7077");
        talk.say_count = 0;
        assert_int_equal(
            way_talk_hear(&talk, (const uint8_t *)cases[i].first, cases[i].first_count, &why),
            RC_OK);
        talk.say_count = 0;
        assert_int_equal(
            way_talk_hear(&talk, (const uint8_t *)cases[i].then, cases[i].then_count, &why),
            cases[i].rc);
        assert_non_null(strstr(why, cases[i].why));
    }
}

static void an_answer_without_end_is_cut_off(void **state)
{
    static const char status[] = "HTTP/1.1 200 ok\r\nX: ";
    struct way way;
    struct way_talk talk;
    const char *why = NULL;
    size_t heard = sizeof status - 1;

    (void)state;
    begin(&talk, &way, "http://p:1", "b.example:7077");
    assert_int_equal(way_talk_hear(&talk, (const uint8_t *)status, heard, &why), RC_OK);
    while (way_talk_hear(&talk, (const uint8_t *)"y", 1, &why) == RC_OK) {
        assert_true(++heard <= WAY_HTTP_BYTES_MAX);
    }
    assert_int_equal(heard, WAY_HTTP_BYTES_MAX);
    assert_non_null(strstr(why, "does not end"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_names_a_proxy),
        cmocka_unit_test(a_command_has_words_and_no_shell),
        cmocka_unit_test(proxies_put_through),
        cmocka_unit_test(a_proxy_that_says_no_or_nonsense_ends_the_dial),
        cmocka_unit_test(an_answer_without_end_is_cut_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
