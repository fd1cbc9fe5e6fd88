/* Any bytes as a file of teachers' answers, and as rows of one; what decodes is a distribution, and
 * is encoded again. */
#include "tests/fuzz/data_fuzz.h"

#include "base/check.h"
#include "distill/answer_file.h"

#include <math.h>

enum { OUTPUTS = 20 };

static void read_rows(const struct answer_form *form, const uint8_t *bytes, size_t count)
{
    const size_t each = answer_row_bytes(form);
    float row[OUTPUTS];
    uint8_t again[4 * OUTPUTS];

    for (; count >= each; bytes += each, count -= each) {
        double sum = 0;
        if (answer_decode(form, bytes, row) != RC_OK) continue;
        for (uint32_t i = 0; i < form->outputs; i++) {
            CHECK(isfinite(row[i]) && (form->is_real || row[i] >= 0));
            sum += (double)row[i];
        }
        CHECK(form->is_real || fabs(sum - 1) < 1e-3);
        answer_encode(form, row, again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const struct answer_form forms[] = {{OUTPUTS, OUTPUTS, false},
                                               {OUTPUTS, 3, false},
                                               {OUTPUTS, 1, false},
                                               {OUTPUTS, OUTPUTS, true}};
    char path[DATA_FUZZ_PATH_BYTES];
    int file = data_fuzz_file(bytes, count, path);

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct answer_file_options options = {.path = path, .form = forms[i], .rows = 2};
        struct answer_file *opened = NULL;
        float row[OUTPUTS];

        read_rows(&forms[i], bytes, count);
        if (answer_file_open(&options, &opened, NULL) != RC_OK) continue;
        for (uint64_t r = 0; r < options.rows; r++) {
            enum rc rc = answer_file_get(opened, r, row);
            (void)rc;
        }
        answer_file_close(opened);
    }
    close(file);
    return 0;
}
