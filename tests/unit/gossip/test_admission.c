/* admission: what the three lists let in, what they refuse, and which files are refused whole. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/door/admission.h"

#include <stdio.h>
#include <stdlib.h>

enum { NOW = 1800000000, HOUR = 3600 };

struct scene {
    struct admission admission;
    struct identity owner, member, other;
    struct hello hello; /* of the member */
    struct fault why;
};

static void make_identity(uint8_t number, struct identity *identity)
{
    uint8_t seed[SECRET_BYTES] = {number};

    identity_from_seed(seed, identity);
}

static void scene_init(struct scene *scene)
{
    memset(scene, 0, sizeof *scene);
    assert_int_equal(secure_start(), RC_OK);
    make_identity(1, &scene->owner);
    make_identity(2, &scene->member);
    make_identity(3, &scene->other);
    scene->admission.run_id = hash_of("run", 3);
    memcpy(scene->hello.public_key, scene->member.public_key, PUBLIC_KEY_BYTES);
}

static enum rc knock(struct scene *scene)
{
    scene->why.text[0] = '\0';
    return admission_check(&scene->admission, &scene->hello, NOW, &scene->why);
}

static void says(const struct scene *scene, const char *words)
{
    if (strstr(scene->why.text, words) == NULL) fail_msg("'%s' not in: %s", words, scene->why.text);
}

/* Hexadecimal of a key, and what follows it, as a line. */
static const char *line_of(const struct identity *identity, const char *after, char *text)
{
    char key[PUBLIC_KEY_TEXT];

    public_key_format(identity->public_key, key);
    snprintf(text, 200, "%s%s\n", key, after);
    return text;
}

/* ---- the allow-list ---- */

/* Who stands in the list comes in, others read that they do not stand there. */
static void the_allow_list_lets_in_who_is_on_it(void **state)
{
    struct scene scene;
    char text[1000], a[200], b[200];

    (void)state;
    scene_init(&scene);
    assert_int_equal(knock(&scene), RC_OK); /* no list: everybody */
    snprintf(text, sizeof text, "# my machines\r\n\n%s  %s", line_of(&scene.member, " # mine", a),
             line_of(&scene.owner, "\tthe other one", b));
    scene.admission.has_allow = true;
    assert_int_equal(allow_parse(text, strlen(text), &scene.admission.allow, &scene.why), RC_OK);
    assert_int_equal(scene.admission.allow.count, 2);
    assert_int_equal(knock(&scene), RC_OK);
    memcpy(scene.hello.public_key, scene.other.public_key, PUBLIC_KEY_BYTES);
    assert_int_equal(knock(&scene), RC_REFUSED);
    says(&scene, "not on the --allow list");
    admission_deinit(&scene.admission);
}

/* Twice the same key is once; a thousand keys in any order are found, others are not. */
static void lists_are_sets(void **state)
{
    enum { KEYS = 1000 };
    struct key_list list;
    struct fault why;
    char *text = calloc(2 * KEYS, PUBLIC_KEY_TEXT), *at = text;
    uint8_t key[PUBLIC_KEY_BYTES];

    (void)state;
    for (uint32_t i = 0; i < 2 * KEYS; i++) {
        uint32_t number = i * 7919 % KEYS;
        struct digest digest = hash_of(&number, sizeof number);

        public_key_format(digest.bytes, at);
        at[PUBLIC_KEY_TEXT - 1] = '\n';
        at += PUBLIC_KEY_TEXT;
    }
    assert_int_equal(allow_parse(text, (size_t)(at - text), &list, &why), RC_OK);
    assert_int_equal(list.count, KEYS);
    for (uint32_t i = 0; i < 2 * KEYS; i++) {
        struct digest digest = hash_of(&i, sizeof i);

        memcpy(key, digest.bytes, sizeof key);
        assert_int_equal(key_list_has(&list, key), i < KEYS);
    }
    key_list_deinit(&list);
    assert_false(key_list_has(&list, key));
    free(text);
}

/* A file with anything wrong in it is refused as a whole, and its line is named. */
static void a_broken_allow_list_names_its_line(void **state)
{
    static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static const struct {
        const char *text, *says;
    } cases[] = {{"", "no key"},      {"# nothing\n\n", "no key"}, {"%s\nabc\n", "line 2"},
                 {"%sf\n", "line 1"}, {"\n\ng%s\n", "line 3"},     {"%.63s\n", "line 1"}};
    struct key_list list = {.keys = NULL};
    char text[400];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct fault why = {""};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
        snprintf(text, sizeof text, cases[i].text, key);
#pragma GCC diagnostic pop
        assert_int_equal(allow_parse(text, strlen(text), &list, &why), RC_PARSE);
        assert_non_null(strstr(why.text, cases[i].says));
        assert_null(list.keys);
    }
    for (uint64_t after = 0; after < 1; after++) {
        struct fault why = {""};

        snprintf(text, sizeof text, "%s\n", key);
        mem_fail_after(after);
        assert_int_equal(allow_parse(text, strlen(text), &list, &why), RC_NOMEM);
        mem_fail_after(UINT64_MAX);
    }
}

/* More keys than there may be, or a file of more bytes, are limits with a name. */
static void a_huge_list_is_refused(void **state)
{
    size_t bytes = (ALLOW_KEYS_MAX + 1) * (size_t)PUBLIC_KEY_TEXT;
    char *text = calloc(1, LIST_BYTES_MAX + 1);
    struct key_list list = {.keys = NULL};
    struct fault why = {""};

    (void)state;
    memset(text, 'a', bytes);
    for (size_t at = PUBLIC_KEY_TEXT - 1; at < bytes; at += PUBLIC_KEY_TEXT) {
        text[at] = '\n';
    }
    assert_int_equal(allow_parse(text, bytes, &list, &why), RC_LIMIT);
    assert_int_equal(allow_parse(text, LIST_BYTES_MAX + 1, &list, &why), RC_LIMIT);
    assert_null(list.keys);
    free(text);
}

/* ---- certificates ---- */

static struct certificate certify(struct scene *scene, const struct identity *whom)
{
    struct certificate certificate = {
        .role = HELLO_PEER, .not_before_s = NOW - HOUR, .not_after_s = NOW + HOUR, .serial = 7};

    memcpy(certificate.public_key, whom->public_key, PUBLIC_KEY_BYTES);
    certificate_sign(&certificate, &scene->owner, scene->admission.run_id);
    memcpy(scene->admission.authority, scene->owner.public_key, PUBLIC_KEY_BYTES);
    scene->admission.has_authority = true;
    return certificate;
}

static void show(struct scene *scene, const struct certificate *certificate)
{
    certificate_encode(certificate, scene->hello.certificate);
    scene->hello.certificate_bytes = CERTIFICATE_WIRE_BYTES;
}

static void a_certificate_lets_its_holder_in(void **state)
{
    struct scene scene;
    struct certificate certificate;

    (void)state;
    scene_init(&scene);
    certificate = certify(&scene, &scene.member);
    assert_int_equal(knock(&scene), RC_REFUSED);
    says(&scene, "need a --certificate");
    show(&scene, &certificate);
    assert_int_equal(knock(&scene), RC_OK);
    memcpy(scene.hello.public_key, scene.other.public_key, PUBLIC_KEY_BYTES); /* stolen */
    assert_int_equal(knock(&scene), RC_REFUSED);
    says(&scene, "another key");
}

/* No byte of it can be changed, its form cannot either, nor owner, nor run. */
static void a_forged_certificate_is_refused(void **state)
{
    struct scene scene;
    struct certificate certificate;

    (void)state;
    scene_init(&scene);
    certificate = certify(&scene, &scene.member);
    for (size_t i = 0; i < CERTIFICATE_WIRE_BYTES; i++) {
        show(&scene, &certificate);
        scene.hello.certificate[i] ^= 1;
        assert_int_equal(knock(&scene), RC_REFUSED);
    }
    for (uint32_t count = 1; count <= CERTIFICATE_BYTES_MAX; count++) {
        show(&scene, &certificate);
        scene.hello.certificate_bytes = count;
        assert_int_equal(knock(&scene), count == CERTIFICATE_WIRE_BYTES ? RC_OK : RC_REFUSED);
    }
    show(&scene, &certificate);
    scene.admission.run_id.bytes[0] ^= 1;
    assert_int_equal(knock(&scene), RC_REFUSED);
    scene.admission.run_id.bytes[0] ^= 1;
    memcpy(scene.admission.authority, scene.other.public_key, PUBLIC_KEY_BYTES);
    assert_int_equal(knock(&scene), RC_REFUSED);
    says(&scene, "not signed by this swarm's owner");
}

/* Clocks may differ by a quarter of an hour, at both ends of the time it is good for. */
static void certificates_begin_and_end(void **state)
{
    static const struct {
        int64_t before, after;
        const char *says; /* NULL: let in */
    } cases[] = {
        {0, 0, NULL},
        {CERTIFICATE_SLACK_S, HOUR, NULL},
        {CERTIFICATE_SLACK_S + 1, HOUR, "not valid yet"},
        {-HOUR, -CERTIFICATE_SLACK_S, NULL},
        {-HOUR, -CERTIFICATE_SLACK_S - 1, "ran out"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct scene scene;
        struct certificate certificate;

        scene_init(&scene);
        certificate = certify(&scene, &scene.member);
        certificate.not_before_s = (uint64_t)(NOW + cases[i].before);
        certificate.not_after_s = (uint64_t)(NOW + cases[i].after);
        certificate_sign(&certificate, &scene.owner, scene.admission.run_id);
        show(&scene, &certificate);
        assert_int_equal(knock(&scene), cases[i].says == NULL ? RC_OK : RC_REFUSED);
        if (cases[i].says != NULL) says(&scene, cases[i].says);
    }
}

/* An observer's certificate is good for looking only. */
static void an_observer_may_not_come_as_a_peer(void **state)
{
    struct scene scene;
    struct certificate certificate;

    (void)state;
    scene_init(&scene);
    certificate = certify(&scene, &scene.member);
    certificate.role = HELLO_OBSERVER;
    certificate_sign(&certificate, &scene.owner, scene.admission.run_id);
    show(&scene, &certificate);
    assert_int_equal(knock(&scene), RC_REFUSED);
    says(&scene, "observer only");
    scene.hello.role = HELLO_OBSERVER;
    assert_int_equal(knock(&scene), RC_OK);
}

/* A certificate's file reads back as it was, in one form only. */
static void certificate_files_are_strict(void **state)
{
    struct scene scene;
    struct certificate certificate, read;
    struct fault why = {""};
    char text[CERTIFICATE_TEXT_MAX], other[CERTIFICATE_TEXT_MAX + 8];

    (void)state;
    scene_init(&scene);
    certificate = certify(&scene, &scene.member);
    certificate_format(&certificate, text);
    memset(&read, 0, sizeof read);
    assert_int_equal(certificate_parse(text, strlen(text), &read, &why), RC_OK);
    assert_memory_equal(&read, &certificate, sizeof read);
    assert_int_equal(certificate_parse(text, strlen(text) - 1, &read, &why), RC_OK);
    for (size_t cut = 0; cut < strlen(text) - 1; cut++) {
        assert_int_equal(certificate_parse(text, cut, &read, &why), RC_PARSE);
    }
    for (size_t i = 0; i <= strlen(text); i++) { /* a blank anywhere is one too many */
        memcpy(other, text, i);
        other[i] = ' ';
        memcpy(other + i + 1, text + i, strlen(text + i) + 1);
        assert_int_equal(certificate_parse(other, strlen(other), &read, &why), RC_PARSE);
        assert_true(why.text[0] != '\0');
    }
}

/* ---- the deny list ---- */

static char *deny_text(struct scene *scene, const char *keys, uint64_t serial)
{
    struct deny_list deny;
    char *text;

    assert_int_equal(deny_make(keys, strlen(keys), serial, &scene->owner, scene->admission.run_id,
                               &deny, &scene->why),
                     RC_OK);
    text = deny_format(&deny);
    assert_non_null(text);
    deny_list_deinit(&deny);
    return text;
}

static enum rc take(struct scene *scene, const char *text)
{
    struct deny_list deny;
    enum rc rc = deny_parse(text, strlen(text), scene->owner.public_key, scene->admission.run_id,
                            &deny, &scene->why);

    return rc != RC_OK ? rc : admission_take_deny(&scene->admission, &deny, &scene->why);
}

/* Who is denied stays out although the other lists know him; a newer list can let him in again; an
 * older one, or another of the same serial, changes nothing. */
static void the_highest_deny_list_counts(void **state)
{
    struct scene scene;
    char line[200], *old, *new, *same, *empty;

    (void)state;
    scene_init(&scene);
    line_of(&scene.member, "", line);
    assert_int_equal(allow_parse(line, strlen(line), &scene.admission.allow, &scene.why), RC_OK);
    scene.admission.has_allow = true;
    old = deny_text(&scene, line_of(&scene.other, "", line), 3);
    new = deny_text(&scene, line_of(&scene.member, " # left", line), 10);
    same = deny_text(&scene, line_of(&scene.other, "", line), 10);
    empty = deny_text(&scene, "", 11);
    assert_int_equal(take(&scene, old), RC_OK);
    assert_int_equal(knock(&scene), RC_OK);
    assert_int_equal(take(&scene, new), RC_OK);
    assert_int_equal(knock(&scene), RC_REFUSED);
    says(&scene, "deny list");
    assert_int_equal(take(&scene, new), RC_OK);
    assert_int_equal(take(&scene, old), RC_STALE);
    assert_int_equal(take(&scene, same), RC_STALE);
    says(&scene, "serial");
    assert_int_equal(knock(&scene), RC_REFUSED);
    assert_int_equal(take(&scene, empty), RC_OK);
    assert_int_equal(knock(&scene), RC_OK);
    admission_deinit(&scene.admission);
    mem_free(old);
    mem_free(new);
    mem_free(same);
    mem_free(empty);
}

/* Each character counts: changed, missing or added, the list is refused and nothing is leaked. */
static void a_changed_deny_list_is_refused(void **state)
{
    struct scene scene;
    char line[200], *text, *other;
    uint64_t blocks;
    size_t count;

    (void)state;
    scene_init(&scene);
    text = deny_text(&scene, line_of(&scene.member, "", line), 12);
    count = strlen(text);
    other = calloc(1, count + 2);
    blocks = mem_blocks();
    for (size_t i = 0; i + 1 < count; i++) {
        memcpy(other, text, count + 1);
        other[i] = other[i] == '1' ? '2' : '1';
        if (other[i] == text[i]) continue;
        assert_int_not_equal(take(&scene, other), RC_OK);
        assert_true(scene.why.text[0] != '\0');
        memcpy(other, text, i);
        other[i] = '\0';
        assert_int_not_equal(take(&scene, other), RC_OK);
    }
    snprintf(other, count + 2, "%s\n", text);
    assert_int_equal(take(&scene, other), RC_PARSE);
    memcpy(&scene.owner, &scene.other, sizeof scene.owner);
    assert_int_equal(take(&scene, text), RC_AUTH);
    assert_int_equal(mem_blocks(), blocks);
    free(other);
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_allow_list_lets_in_who_is_on_it),
        cmocka_unit_test(lists_are_sets),
        cmocka_unit_test(a_broken_allow_list_names_its_line),
        cmocka_unit_test(a_huge_list_is_refused),
        cmocka_unit_test(a_certificate_lets_its_holder_in),
        cmocka_unit_test(a_forged_certificate_is_refused),
        cmocka_unit_test(certificates_begin_and_end),
        cmocka_unit_test(an_observer_may_not_come_as_a_peer),
        cmocka_unit_test(certificate_files_are_strict),
        cmocka_unit_test(the_highest_deny_list_counts),
        cmocka_unit_test(a_changed_deny_list_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
