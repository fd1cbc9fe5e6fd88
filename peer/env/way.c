/*
 * way: see the header. A conversation with a proxy is one state machine, fed as bytes come:
 *
 *   SOCKS5  GREETING --no password--> ASKING --granted--> OPEN
 *              '--password--> PASSWORD --taken--^
 *   HTTP    ASKING --2xx--> OPEN
 */
#include "peer/env/way.h"

#include "base/base64.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOCKS_VERSION = 5, SOCKS_NO_PASSWORD = 0, SOCKS_PASSWORD = 2, SOCKS_NONE_FITS = 0xff };
enum { PASSWORD_VERSION = 1, SOCKS_CONNECT = 1, SOCKS_IP4 = 1, SOCKS_NAME = 3, SOCKS_IP6 = 4 };
enum { HTTP_STATUS_BYTES = 12 }; /* "HTTP/1.1 200" */

static const char too_much[] = "the proxy sent more than an answer";

/* ---- flags ---- */

/* Percent-encoded, as names and passwords in URLs are (RFC 3986, 2.1). */
static bool decode(const char *text, size_t count, char out[WAY_SECRET_BYTES])
{
    size_t written = 0;

    for (size_t i = 0; i < count; i++) {
        char letter = text[i];

        if (letter == '%') {
            char digits[3] = "";

            if (count - i < 3) return false;
            memcpy(digits, text + i + 1, 2);
            if (strspn(digits, "0123456789abcdefABCDEF") != 2) return false;
            letter = (char)strtoul(digits, NULL, 16);
            i += 2;
        }
        if (letter == '\0' || written == WAY_SECRET_BYTES - 1) return false;
        out[written++] = letter;
    }
    out[written] = '\0';
    return true;
}

/* "user:password" */
static bool parse_secret(const char *text, size_t count, struct way *way)
{
    const char *colon = memchr(text, ':', count);
    size_t user = colon != NULL ? (size_t)(colon - text) : count;

    if (!decode(text, user, way->user) || way->user[0] == '\0') return false;
    if (strchr(way->user, ':') != NULL) return false; /* RFC 7617: it would end the name */
    return colon == NULL || decode(colon + 1, count - user - 1, way->password);
}

static bool parse_url(const char *url, struct way *way)
{
    static const struct {
        const char *scheme;
        enum way_kind kind;
    } schemes[] = {{"socks5://", WAY_SOCKS5}, {"socks5h://", WAY_SOCKS5}, {"http://", WAY_HTTP}};
    char host[HOST_NAME_BYTES + PORT_TEXT_BYTES + 4];
    const char *at;
    size_t count;

    for (size_t i = 0; i < ARRAY_COUNT(schemes) && way->kind == WAY_DIRECT; i++) {
        size_t bytes = strlen(schemes[i].scheme);

        if (strncmp(url, schemes[i].scheme, bytes) != 0) continue;
        way->kind = schemes[i].kind;
        url += bytes;
    }
    if (way->kind == WAY_DIRECT) return false;
    at = strrchr(url, '@');
    if (at != NULL && !parse_secret(url, (size_t)(at - url), way)) return false;
    if (at != NULL) url = at + 1;
    count = strlen(url);
    if (count > 0 && url[count - 1] == '/') count--; /* as environments have it */
    if (count >= sizeof host) return false;
    memcpy(host, url, count);
    host[count] = '\0';
    return address_parse(host, &way->proxy) == RC_OK && way->proxy.port != 0;
}

static enum rc parse_command(const char *command, struct way *way, struct fault *why)
{
    char room[WAY_WORDS_BYTES], *words[WAY_WORDS_MAX + 1];
    struct address longest = {.port_text = "65535", .port = 65535};

    memset(longest.host, 'x', sizeof longest.host - 1);
    if (strstr(command, "%h") == NULL || strstr(command, "%p") == NULL) {
        return fault_set(why, RC_USAGE,
                         "--dial-command %.200s: the words %%h and %%p, for host and port, are not "
                         "in it; write it like 'ssh -W %%h:%%p login'",
                         command);
    }
    if (strlen(command) >= sizeof way->command) {
        return fault_set(why, RC_USAGE, "--dial-command: longer than %d bytes; put it in a script",
                         WAY_COMMAND_BYTES - 1);
    }
    way->kind = WAY_COMMAND;
    memcpy(way->command, command, strlen(command) + 1);
    if (way_command_words(way, &longest, room, words) == RC_OK) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--dial-command %.200s: more than %d words, or a sign other than %%h, %%p and "
                     "%%%%; put it in a script",
                     command, WAY_WORDS_MAX);
}

enum rc way_parse(const struct way_flags *flags, struct way *way, struct fault *why)
{
    struct way parsed = {.kind = WAY_DIRECT};
    enum rc rc = RC_OK;

    CHECK(flags != NULL && way != NULL);
    if (flags->proxy != NULL && flags->dial_command != NULL) {
        return fault_set(why, RC_USAGE,
                         "--proxy and --dial-command: one of the two; a command may "
                         "use a proxy of its own");
    }
    if (flags->dial_command != NULL) rc = parse_command(flags->dial_command, &parsed, why);
    if (flags->proxy != NULL && !parse_url(flags->proxy, &parsed)) {
        /* It may hold a password: it is not repeated. */
        rc = fault_set(why, RC_USAGE,
                       "--proxy: not a proxy's URL; write it like socks5://HOST:PORT or "
                       "http://USER:PASSWORD@HOST:PORT, with %%3A for a ':' in a name");
    }
    if (rc == RC_OK) *way = parsed;
    mem_wipe(&parsed, sizeof parsed);
    return rc;
}

void way_describe(const struct way *way, char *text, size_t cap)
{
    bool is_six = strchr(way->proxy.host, ':') != NULL;

    if (way->kind == WAY_DIRECT) {
        snprintf(text, cap, "no proxy");
    } else if (way->kind == WAY_COMMAND) {
        snprintf(text, cap, "the command '%.200s'", way->command);
    } else {
        snprintf(text, cap, "the %s proxy %s%s%s:%s", way->kind == WAY_HTTP ? "HTTP" : "SOCKS5",
                 is_six ? "[" : "", way->proxy.host, is_six ? "]" : "", way->proxy.port_text);
    }
}

enum rc way_command_words(const struct way *way, const struct address *target,
                          char room[WAY_WORDS_BYTES], char *words[WAY_WORDS_MAX + 1])
{
    const char *from = way->command + strspn(way->command, " \t");
    size_t used = 0, count = 0;

    CHECK(way->kind == WAY_COMMAND);
    while (*from != '\0') {
        if (count == WAY_WORDS_MAX) return RC_LIMIT;
        words[count++] = room + used;
        for (; *from != '\0' && *from != ' ' && *from != '\t'; from++) {
            const char *piece = from;
            size_t bytes = 1;

            if (*from == '%') {
                from++;
                piece = *from == 'h' ? target->host : *from == 'p' ? target->port_text : from;
                if (*from != 'h' && *from != 'p' && *from != '%') return RC_LIMIT;
                if (*from != '%') bytes = strlen(piece);
            }
            if (WAY_WORDS_BYTES - used <= bytes) return RC_LIMIT;
            memcpy(room + used, piece, bytes);
            used += bytes;
        }
        room[used++] = '\0';
        from += strspn(from, " \t");
        if (used == WAY_WORDS_BYTES && *from != '\0') return RC_LIMIT;
    }
    words[count] = NULL;
    return RC_OK;
}

/* ---- what is said ---- */

static void say(struct way_talk *talk, const void *bytes, size_t count)
{
    CHECK(count <= sizeof talk->say - talk->say_count);
    memcpy(talk->say + talk->say_count, bytes, count);
    talk->say_count += count;
}

static void say_byte(struct way_talk *talk, unsigned byte)
{
    uint8_t octet = (uint8_t)byte;

    CHECK(byte <= UINT8_MAX);
    say(talk, &octet, 1);
}

static void say_text(struct way_talk *talk, const char *text)
{
    say(talk, text, strlen(text));
}

static void become(struct way_talk *talk, enum way_state state)
{
    talk->state = state;
    talk->heard_count = 0;
}

/* RFC 1928, 4. */
static void ask_socks(struct way_talk *talk)
{
    const char *host = talk->target.host;
    uint8_t number[sizeof(struct in6_addr)];

    become(talk, WAY_ASKING);
    say_byte(talk, SOCKS_VERSION);
    say_byte(talk, SOCKS_CONNECT);
    say_byte(talk, 0);
    if (inet_pton(AF_INET, host, number) == 1) {
        say_byte(talk, SOCKS_IP4);
        say(talk, number, sizeof(struct in_addr));
    } else if (inet_pton(AF_INET6, host, number) == 1) {
        say_byte(talk, SOCKS_IP6);
        say(talk, number, sizeof(struct in6_addr));
    } else {
        say_byte(talk, SOCKS_NAME);
        say_byte(talk, (unsigned)strlen(host));
        say_text(talk, host);
    }
    say_byte(talk, talk->target.port >> 8);
    say_byte(talk, talk->target.port & 0xff);
}

/* RFC 1929, 2. */
static void say_password(struct way_talk *talk)
{
    become(talk, WAY_PASSWORD);
    say_byte(talk, PASSWORD_VERSION);
    say_byte(talk, (unsigned)strlen(talk->way->user));
    say_text(talk, talk->way->user);
    say_byte(talk, (unsigned)strlen(talk->way->password));
    say_text(talk, talk->way->password);
}

/* RFC 9110, 9.3.6; RFC 7617. */
static void ask_http(struct way_talk *talk)
{
    const struct way *way = talk->way;
    const bool is_six = strchr(talk->target.host, ':') != NULL;
    char host[HOST_NAME_BYTES + PORT_TEXT_BYTES + 4], line[2 * sizeof host + 32];

    become(talk, WAY_ASKING);
    snprintf(host, sizeof host, "%s%s%s:%s", is_six ? "[" : "", talk->target.host,
             is_six ? "]" : "", talk->target.port_text);
    snprintf(line, sizeof line, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", host, host);
    say_text(talk, line);
    if (way->user[0] != '\0') {
        char secret[2 * WAY_SECRET_BYTES], text[4 * sizeof secret / 3 + 4];

        snprintf(secret, sizeof secret, "%s:%s", way->user, way->password);
        base64_encode(secret, strlen(secret), text);
        say_text(talk, "Proxy-Authorization: Basic ");
        say(talk, text, base64_length(strlen(secret)));
        say_text(talk, "\r\n");
        mem_wipe(secret, sizeof secret);
        mem_wipe(text, sizeof text);
    }
    say_text(talk, "\r\n");
}

void way_talk_begin(struct way_talk *talk, const struct way *way, const struct address *target)
{
    CHECK(way->kind == WAY_SOCKS5 || way->kind == WAY_HTTP);
    memset(talk, 0, sizeof *talk);
    talk->way = way;
    talk->target = *target;
    if (way->kind == WAY_HTTP) {
        ask_http(talk);
        return;
    }
    become(talk, WAY_GREETING);
    say_byte(talk, SOCKS_VERSION);
    say_byte(talk, way->user[0] != '\0' ? 2 : 1);
    say_byte(talk, SOCKS_NO_PASSWORD);
    if (way->user[0] != '\0') say_byte(talk, SOCKS_PASSWORD);
}

/* ---- what is heard ---- */

static enum rc refused(const char **why, enum rc rc, const char *text)
{
    *why = text;
    return rc;
}

/* RFC 1928, 6. */
static enum rc socks_refusal(uint8_t code, const char **why)
{
    static const struct {
        enum rc rc;
        const char *why;
    } table[] = {
        [1] = {RC_IO, "the proxy failed"},
        [2] = {RC_REFUSED, "the proxy forbids that address"},
        [3] = {RC_IO, "the proxy has no route to that network"},
        [4] = {RC_IO, "the proxy has no route to that host, or does not know its name"},
        [5] = {RC_REFUSED, "connection refused, says the proxy"},
        [6] = {RC_TIMEOUT, "no answer from there, says the proxy"},
        [7] = {RC_UNSUPPORTED, "the proxy does not connect, it says"},
        [8] = {RC_UNSUPPORTED, "the proxy does not know that kind of address"},
    };

    if (code >= ARRAY_COUNT(table))
        return refused(why, RC_FORMAT, "the proxy gave no known reason");
    return refused(why, table[code].rc, table[code].why);
}

/* How long the answer under way is, as far as can be told by what is there of it. */
static size_t socks_wanted(const struct way_talk *talk)
{
    const uint8_t *heard = talk->heard;

    if (talk->state != WAY_ASKING) return 2;
    if (talk->heard_count < 5) return 5;
    if (heard[3] == SOCKS_IP4) return 4 + sizeof(struct in_addr) + 2;
    if (heard[3] == SOCKS_IP6) return 4 + sizeof(struct in6_addr) + 2;
    return 4 + 1 + (size_t)heard[4] + 2;
}

/* Whoever refuses may leave the rest of the answer out. */
static enum rc socks_check(const struct way_talk *talk, const char **why)
{
    const uint8_t *heard = talk->heard;

    if (heard[0] != (talk->state == WAY_PASSWORD ? PASSWORD_VERSION : SOCKS_VERSION)) {
        return refused(why, RC_FORMAT, "what --proxy names does not speak SOCKS5");
    }
    if (talk->heard_count < 2 || talk->state != WAY_ASKING) return RC_OK;
    if (heard[1] != 0) return socks_refusal(heard[1], why);
    if (talk->heard_count < 4) return RC_OK;
    if (heard[3] == SOCKS_IP4 || heard[3] == SOCKS_IP6 || heard[3] == SOCKS_NAME) return RC_OK;
    return refused(why, RC_FORMAT, "what --proxy names does not speak SOCKS5");
}

static enum rc socks_answered(struct way_talk *talk, const char **why)
{
    const uint8_t answer = talk->heard[1];

    if (talk->state == WAY_ASKING) {
        become(talk, WAY_OPEN);
    } else if (talk->state == WAY_PASSWORD) {
        if (answer != 0) {
            return refused(why, RC_AUTH,
                           "the proxy does not take the name and password of --proxy");
        }
        ask_socks(talk);
    } else if (answer == SOCKS_NO_PASSWORD) {
        ask_socks(talk);
    } else if (answer == SOCKS_PASSWORD && talk->way->user[0] != '\0') {
        say_password(talk);
    } else if (answer == SOCKS_NONE_FITS) {
        return refused(why, RC_AUTH,
                       talk->way->user[0] != '\0'
                           ? "the proxy takes neither nobody nor a name and password"
                           : "the proxy wants a name and password: --proxy "
                             "socks5://USER:PASSWORD@HOST:PORT");
    } else {
        return refused(why, RC_FORMAT, "the proxy chose what it was not offered");
    }
    return RC_OK;
}

static enum rc hear_socks(struct way_talk *talk, const uint8_t *bytes, size_t count,
                          const char **why)
{
    for (size_t i = 0; i < count; i++) {
        enum rc rc;

        /* It speaks when it was spoken to. */
        if (talk->state == WAY_OPEN || talk->say_count > 0) {
            return refused(why, RC_FORMAT, too_much);
        }
        CHECK(talk->heard_count < sizeof talk->heard);
        talk->heard[talk->heard_count++] = bytes[i];
        rc = socks_check(talk, why);
        if (rc == RC_OK && talk->heard_count == socks_wanted(talk)) rc = socks_answered(talk, why);
        if (rc != RC_OK) return rc;
    }
    return RC_OK;
}

static enum rc http_answered(struct way_talk *talk, const char **why)
{
    const char *status = (const char *)talk->heard + HTTP_STATUS_BYTES - 3;

    if (status[0] == '2') {
        become(talk, WAY_OPEN);
        return RC_OK;
    }
    if (memcmp(status, "407", 3) == 0) {
        return refused(why, RC_AUTH,
                       talk->way->user[0] != '\0'
                           ? "the proxy does not take the name and password of --proxy"
                           : "the proxy wants a name and password: --proxy "
                             "http://USER:PASSWORD@HOST:PORT");
    }
    if (memcmp(status, "403", 3) == 0 || memcmp(status, "405", 3) == 0) {
        return refused(why, RC_REFUSED,
                       "the proxy forbids that address or port; many let CONNECT through to port "
                       "443 alone");
    }
    if (memcmp(status, "504", 3) == 0) {
        return refused(why, RC_TIMEOUT, "no answer from there, says the proxy");
    }
    if (status[0] == '5') {
        return refused(why, RC_IO,
                       "the proxy cannot reach that address, or does not know its name");
    }
    return refused(why, RC_FORMAT, "the proxy refuses to connect");
}

/* Is what came of the status line what one begins with? */
static bool is_status(const uint8_t *heard, size_t count)
{
    static const char form[HTTP_STATUS_BYTES + 1] = "HTTP/1.d ddd";

    for (size_t i = 0; i < count; i++) {
        if (form[i] == 'd' ? heard[i] < '0' || heard[i] > '9' : heard[i] != (uint8_t)form[i]) {
            return false;
        }
    }
    return true;
}

static enum rc hear_http(struct way_talk *talk, const uint8_t *bytes, size_t count,
                         const char **why)
{
    for (size_t i = 0; i < count; i++) {
        const uint8_t byte = bytes[i];

        if (talk->state == WAY_OPEN) return refused(why, RC_FORMAT, too_much);
        if (talk->heard_count == WAY_HTTP_BYTES_MAX) {
            return refused(why, RC_LIMIT, "the proxy's answer does not end");
        }
        if (talk->heard_count < HTTP_STATUS_BYTES) {
            talk->heard[talk->heard_count] = byte;
            if (!is_status(talk->heard, talk->heard_count + 1)) {
                return refused(why, RC_FORMAT, "what --proxy names is no HTTP proxy");
            }
        }
        talk->heard_count++;
        if (byte != '\r') talk->line_ends = byte == '\n' ? (uint8_t)(talk->line_ends + 1) : 0;
        if (talk->line_ends == 2) {
            enum rc rc = http_answered(talk, why);

            if (rc != RC_OK) return rc;
        }
    }
    return RC_OK;
}

enum rc way_talk_hear(struct way_talk *talk, const uint8_t *bytes, size_t count, const char **why)
{
    CHECK(talk != NULL && why != NULL);
    return talk->way->kind == WAY_HTTP ? hear_http(talk, bytes, count, why)
                                       : hear_socks(talk, bytes, count, why);
}
