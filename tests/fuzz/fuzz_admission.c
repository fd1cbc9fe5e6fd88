/* Any text as an allow-list, a certificate file and a deny list, any bytes as a certificate on the
 * wire: no crash, no leak, and what is taken reads back the same. */
#include "base/check.h"
#include "base/mem.h"
#include "gossip/door/admission.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_lists(const char *text, size_t size, const uint8_t *key, struct digest run_id)
{
    struct key_list allow;
    struct deny_list deny;
    struct fault why = {""};

    if (allow_parse(text, size, &allow, &why) == RC_OK) {
        CHECK(allow.count > 0 && key_list_has(&allow, allow.keys[0]));
        key_list_deinit(&allow);
    } else {
        CHECK(why.text[0] != '\0');
    }
    if (deny_parse(text, size, key, run_id, &deny, &why) == RC_OK) {
        char *again = deny_format(&deny);

        CHECK(deny.serial > 0);
        if (again != NULL) mem_free(again);
        deny_list_deinit(&deny);
    }
}

static void read_certificates(const uint8_t *data, size_t size, const uint8_t *key,
                              struct digest run_id)
{
    struct admission admission = {.run_id = run_id, .has_authority = true};
    struct certificate certificate;
    struct hello hello = {.role = HELLO_PEER};
    struct fault why = {""};
    char text[CERTIFICATE_TEXT_MAX];

    if (certificate_parse((const char *)data, size, &certificate, &why) == RC_OK) {
        certificate_format(&certificate, text);
        CHECK(size <= strlen(text) + 1 && certificate.role <= HELLO_OBSERVER);
    }
    if (size > CERTIFICATE_BYTES_MAX) return;
    memcpy(hello.public_key, key, PUBLIC_KEY_BYTES);
    memcpy(admission.authority, key, PUBLIC_KEY_BYTES);
    memcpy(hello.certificate, data, size);
    hello.certificate_bytes = (uint32_t)size;
    (void)admission_check(&admission, &hello, 1800000000, &why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t seed[SECRET_BYTES] = {1};
    struct digest run_id = {{1, 2, 3}};
    struct identity owner;

    if (secure_start() != RC_OK) return 0;
    identity_from_seed(seed, &owner);
    read_lists((const char *)data, size, owner.public_key, run_id);
    read_certificates(data, size, owner.public_key, run_id);
    return 0;
}
