/* See certificate.h. Runs on the loop thread, and in keygen. */
#include "gossip/signed/certificate.h"

#include "base/bytes.h"
#include "base/check.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 1, SIGNED_COUNT = DIGEST_BYTES + PUBLIC_KEY_BYTES + 2 + 3 * 8 };

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

static void signed_bytes(const struct certificate *certificate, struct digest run_id,
                         uint8_t bytes[SIGNED_COUNT])
{
    memcpy(bytes, run_id.bytes, DIGEST_BYTES);
    memcpy(bytes + DIGEST_BYTES, certificate->public_key, PUBLIC_KEY_BYTES);
    encode_head(certificate, bytes + DIGEST_BYTES + PUBLIC_KEY_BYTES);
}

void certificate_sign(struct certificate *certificate, const struct identity *authority,
                      struct digest run_id)
{
    uint8_t bytes[SIGNED_COUNT];

    CHECK(certificate->role <= HELLO_OBSERVER);
    signed_bytes(certificate, run_id, bytes);
    identity_sign(authority, label, bytes, sizeof bytes, certificate->signature);
}

bool certificate_verify(const struct certificate *certificate,
                        const uint8_t authority[PUBLIC_KEY_BYTES], struct digest run_id)
{
    uint8_t bytes[SIGNED_COUNT];

    signed_bytes(certificate, run_id, bytes);
    return identity_verify(authority, label, bytes, sizeof bytes, certificate->signature);
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

/* ---- reading a file ---- */

struct words {
    const char *at;
    size_t left;
};

/* The next word, up to a blank or the end; its length, 0 at the end. */
static size_t next_word(struct words *words, const char **from)
{
    size_t count = 0;

    *from = words->at;
    while (count < words->left && words->at[count] != ' ') {
        count++;
    }
    words->at += count;
    words->left -= count;
    if (words->left > 1) { /* a blank at the very end belongs to no word: the length is wrong */
        words->at++;
        words->left--;
    }
    return count;
}

static bool take_role(struct words *words, uint32_t *role)
{
    const char *from;
    size_t count = next_word(words, &from);

    for (uint32_t i = 0; i < ARRAY_COUNT(role_words); i++) {
        if (strlen(role_words[i]) == count && memcmp(role_words[i], from, count) == 0) {
            *role = i;
            return true;
        }
    }
    return false;
}

/* Digits only, no leading zero: one number is written in one way. */
static bool take_number(struct words *words, uint64_t *number)
{
    const char *from;
    size_t count = next_word(words, &from);

    *number = 0;
    if (count == 0 || (count > 1 && from[0] == '0')) return false;
    for (size_t i = 0; i < count; i++) {
        uint64_t digit = (uint64_t)(from[i] - '0');

        if (from[i] < '0' || from[i] > '9' || *number > (UINT64_MAX - digit) / 10) return false;
        *number = *number * 10 + digit;
    }
    return true;
}

static bool take_line(struct words words, struct certificate *certificate)
{
    const char *from;
    size_t count = next_word(&words, &from);

    if (count != PUBLIC_KEY_TEXT - 1 || !public_key_parse(from, count, certificate->public_key) ||
        !take_role(&words, &certificate->role) ||
        !take_number(&words, &certificate->not_before_s) ||
        !take_number(&words, &certificate->not_after_s) ||
        !take_number(&words, &certificate->serial)) {
        return false;
    }
    count = next_word(&words, &from);
    return count == SIGNATURE_TEXT - 1 && words.left == 0 &&
           signature_parse(from, count, certificate->signature);
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
    if (!take_line((struct words){text + word_bytes, bytes - word_bytes}, &parsed)) {
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
