/* See certificate.h. Runs on the loop thread, and in keygen. */
#include "gossip/signed/certificate.h"

#include "base/bytes.h"
#include "base/check.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 1, SIGNED_COUNT = PUBLIC_KEY_BYTES + 2 + 3 * 8 };

static const char label[] = "certificate/1";
static const char word[] = "grapevine-certificate-1 ";
static const char *const role_words[] = {[HELLO_PEER] = "peer", [HELLO_OBSERVER] = "observer"};

_Static_assert((int)CERTIFICATE_WIRE_BYTES <= (int)CERTIFICATE_BYTES_MAX, "it fits into a hello");

/* All but the signature, as it travels. */
static void encode_head(const struct certificate *certificate, uint8_t *out)
{
    out[0] = VERSION;
    out[1] = (uint8_t)certificate->role;
    store_le64(out + 2, certificate->not_before_s);
    store_le64(out + 10, certificate->not_after_s);
    store_le64(out + 18, certificate->serial);
}

static void signed_bytes(const struct certificate *certificate, uint8_t bytes[SIGNED_COUNT])
{
    memcpy(bytes, certificate->public_key, PUBLIC_KEY_BYTES);
    encode_head(certificate, bytes + PUBLIC_KEY_BYTES);
}

void certificate_sign(struct certificate *certificate, const struct identity *authority,
                      struct digest run_id)
{
    uint8_t bytes[SIGNED_COUNT];

    CHECK(certificate->role <= HELLO_OBSERVER);
    signed_bytes(certificate, bytes);
    identity_sign(authority, label, run_id, bytes, sizeof bytes, certificate->signature);
}

bool certificate_verify(const struct certificate *certificate,
                        const uint8_t authority[PUBLIC_KEY_BYTES], struct digest run_id)
{
    uint8_t bytes[SIGNED_COUNT];

    signed_bytes(certificate, bytes);
    return identity_verify(authority, label, run_id, bytes, sizeof bytes, certificate->signature);
}

enum rc certificate_check_time(const struct certificate *certificate, uint64_t wall_s,
                               struct fault *why)
{
    if (wall_s < certificate->not_before_s &&
        certificate->not_before_s - wall_s > CERTIFICATE_SLACK_S) {
        return fault_set(why, RC_REFUSED,
                         "the certificate is not valid yet, for %llu more minutes: is a clock "
                         "wrong?",
                         (unsigned long long)((certificate->not_before_s - wall_s) / 60));
    }
    if (wall_s > certificate->not_after_s &&
        wall_s - certificate->not_after_s > CERTIFICATE_SLACK_S) {
        return fault_set(why, RC_REFUSED,
                         "the certificate ran out %llu minutes ago: ask the swarm's owner for a "
                         "new one",
                         (unsigned long long)((wall_s - certificate->not_after_s) / 60));
    }
    return RC_OK;
}

void certificate_encode(const struct certificate *certificate, uint8_t out[CERTIFICATE_WIRE_BYTES])
{
    CHECK(certificate->role <= HELLO_OBSERVER);
    encode_head(certificate, out);
    memcpy(out + CERTIFICATE_WIRE_BYTES - SIGNATURE_BYTES, certificate->signature, SIGNATURE_BYTES);
}

enum rc certificate_decode(const uint8_t *bytes, size_t count,
                           const uint8_t public_key[PUBLIC_KEY_BYTES],
                           struct certificate *certificate)
{
    if (count != CERTIFICATE_WIRE_BYTES || bytes[0] != VERSION || bytes[1] > HELLO_OBSERVER) {
        return RC_FORMAT;
    }
    *certificate = (struct certificate){.role = bytes[1],
                                        .not_before_s = load_le64(bytes + 2),
                                        .not_after_s = load_le64(bytes + 10),
                                        .serial = load_le64(bytes + 18)};
    memcpy(certificate->public_key, public_key, PUBLIC_KEY_BYTES);
    memcpy(certificate->signature, bytes + CERTIFICATE_WIRE_BYTES - SIGNATURE_BYTES,
           SIGNATURE_BYTES);
    return RC_OK;
}

void certificate_format(const struct certificate *certificate, char text[CERTIFICATE_TEXT_MAX])
{
    char key[PUBLIC_KEY_TEXT], signature[SIGNATURE_TEXT];
    int count;

    CHECK(certificate->role <= HELLO_OBSERVER);
    public_key_format(certificate->public_key, key);
    signature_format(certificate->signature, signature);
    count = snprintf(text, CERTIFICATE_TEXT_MAX, "%s%s %s %llu %llu %llu %s\n", word, key,
                     role_words[certificate->role], (unsigned long long)certificate->not_before_s,
                     (unsigned long long)certificate->not_after_s,
                     (unsigned long long)certificate->serial, signature);
    CHECK(count > 0 && count < CERTIFICATE_TEXT_MAX);
}

/* One line is written in one way: what says anything else, or says it otherwise, is not what
 * certificate_format() makes of it. */
static bool take_line(const char *text, size_t bytes, struct certificate *certificate)
{
    char line[CERTIFICATE_TEXT_MAX] = "", again[CERTIFICATE_TEXT_MAX];
    char key[PUBLIC_KEY_TEXT], role[16], signature[SIGNATURE_TEXT];
    unsigned long long not_before_s, not_after_s, serial;

    if (bytes >= sizeof line) return false;
    memcpy(line, text, bytes);
    if (sscanf(line + strlen(word), "%64s %15s %llu %llu %llu %128s", key, role, &not_before_s,
               &not_after_s, &serial, signature) != 6 ||
        !public_key_parse(key, strlen(key), certificate->public_key) ||
        !signature_parse(signature, strlen(signature), certificate->signature)) {
        return false;
    }
    certificate->role = strcmp(role, role_words[HELLO_OBSERVER]) == 0 ? HELLO_OBSERVER : HELLO_PEER;
    certificate->not_before_s = not_before_s;
    certificate->not_after_s = not_after_s;
    certificate->serial = serial;
    certificate_format(certificate, again);
    return strlen(again) == bytes + 1 && memcmp(line, again, bytes) == 0;
}

enum rc certificate_parse(const char *text, size_t bytes, struct certificate *certificate,
                          struct fault *why)
{
    struct certificate parsed = {.role = HELLO_PEER};
    size_t word_bytes = strlen(word);

    if (bytes > 0 && text[bytes - 1] == '\n') bytes--;
    if (bytes > 0 && text[bytes - 1] == '\r') bytes--;
    if (bytes <= word_bytes || memcmp(text, word, word_bytes) != 0) {
        return fault_set(why, RC_PARSE,
                         "not a certificate: it does not begin with \"%s\"; make one with "
                         "'grapevine keygen --certificate'",
                         word);
    }
    if (!take_line(text, bytes, &parsed)) {
        return fault_set(why, RC_PARSE,
                         "a damaged certificate: after \"%s\" must come key, role, two times, "
                         "serial and signature, in one line; copy it again",
                         word);
    }
    *certificate = parsed;
    return RC_OK;
}

/* ---- hexadecimal, by way of digests, which are of the same size ---- */

_Static_assert((int)PUBLIC_KEY_BYTES == (int)DIGEST_BYTES &&
                   (int)SIGNATURE_BYTES == 2 * (int)DIGEST_BYTES,
               "a key is as long as a digest, a signature as two");

void public_key_format(const uint8_t key[PUBLIC_KEY_BYTES], char text[PUBLIC_KEY_TEXT])
{
    struct digest digest;

    memcpy(digest.bytes, key, sizeof digest.bytes);
    digest_format(digest, text);
}

bool public_key_parse(const char *text, size_t bytes, uint8_t key[PUBLIC_KEY_BYTES])
{
    char copy[DIGEST_TEXT];
    struct digest digest;

    if (bytes < DIGEST_TEXT - 1) return false;
    memcpy(copy, text, DIGEST_TEXT - 1);
    copy[DIGEST_TEXT - 1] = '\0';
    if (!digest_parse(copy, &digest)) return false;
    memcpy(key, digest.bytes, PUBLIC_KEY_BYTES);
    return true;
}

void signature_format(const uint8_t signature[SIGNATURE_BYTES], char text[SIGNATURE_TEXT])
{
    public_key_format(signature, text);
    public_key_format(signature + DIGEST_BYTES, text + DIGEST_TEXT - 1);
}

bool signature_parse(const char *text, size_t bytes, uint8_t signature[SIGNATURE_BYTES])
{
    return bytes == SIGNATURE_TEXT - 1 && public_key_parse(text, DIGEST_TEXT - 1, signature) &&
           public_key_parse(text + DIGEST_TEXT - 1, DIGEST_TEXT - 1, signature + DIGEST_BYTES);
}
