/* limits: every bound of the wire, in one place; docs/network.md says what they are for. */
#ifndef GRAPEVINE_GOSSIP_WIRE_LIMITS_H
#define GRAPEVINE_GOSSIP_WIRE_LIMITS_H

#include <stdint.h>

/* In the method of hellos, of those whose rounds mix answers and no parameters. */
#define METHOD_ANSWERS "answers, "

enum {
    WIRE_MAJOR = 1,       /* of prefix, handshake and records: another one hears not a byte */
    WIRE_VERSION = 8,     /* of what is said over a link; in the method of hellos, so that peers of
                             unlike ones refuse each other by name. contract_wire says when to raise
                             it */
    WIRE_MAGIC_BYTES = 4, /* "GRPV"; as a little-endian length it exceeds every record cap */
    PREFIX_BYTES = 8,     /* magic[4], wire_major u8, kind u8, length u16 of what follows */
    HANDSHAKE_BYTES_MAX = 1024,
    HELLO_BYTES_MAX = 768, /* msgpack payload of H2 and H3 */
    CERTIFICATE_BYTES_MAX = 128,
    RECORD_HEADER_BYTES = 8, /* len u32 (inner, tag excluded) | epoch u8 | zero u8[3] */
    RECORD_TAG_BYTES = 16,
    INNER_HEADER_BYTES = 16, /* see struct inner_header */
    CONTROL_BYTES_MAX = 64 * 1024,
    BULK_BYTES_MAX = 1024 * 1024 + 16,
    SCAN_DEPTH_MAX = 8,
    SCAN_OBJECTS_MAX = 4096,
    SIGNED_RECORD_BYTES_MAX = 320,
    ADDRESS_BYTES_MAX = 64, /* "host:port" with NUL */
    RECORD_ADDRESSES_MAX = 4,
    PING_UPDATES_MAX = 8,
    GOSSIP_UPDATES_MAX = 16,
    SYNC_RECORDS_MAX = 64,
    SYNC_BUCKETS = 64, /* of a book, by the first six bits of the id */
    SYNC_DIGEST_BYTES = SYNC_BUCKETS * 4,
    ACCUSATION_BYTES = 136,
    OUTCOME_BYTES = 161,  /* signed, see gossip/signed/outcome.h */
    ACCUSATIONS_MAX = 16, /* of one message */
    GROUP_MEMBERS_MAX = 64,
    STATEMENT_BYTES = 16,       /* of one member in START: samples u64, rate u64, little-endian */
    ERROR_TEXT_MAX = 512,       /* both model specs must fit */
    MANIFEST_HASHES_MAX = 1024, /* of one page */
    MEASURED_BYTES_MAX = 48 * 1024, /* of PROGRESS: 6144 channels */
    STATE_SECTIONS_MAX = 8,
    MANIFEST_PROOF_BYTES = 96, /* public key, signature */
    SKETCH_VALUES = 64,
    SKETCH_BYTES = 2 * SKETCH_VALUES * 4, /* of parameters and of buffers */
    STATUS_BYTES_MAX = 48 * 1024,
    PREDICTIONS_BYTES_MAX = 48 * 1024,
    REVEAL_BYTES_MAX = 48 * 1024,
    CLAIM_STEPS_MAX = 4096,
    PROBE_BYTES_MAX = 64 << 20, /* of a window's samples, as a member keeps them */
    CHUNK_VALUES = 32768,       /* float32 values of one chunk of the plane: 128 KiB */
    CHUNKS_MAX = 65536,         /* of one plane: 2^31 values */
    BULK_CONNECTIONS_MAX = 8,   /* of one session */
    MEMBERS_MAX = 8192,
    LINKS_MAX = 256,      /* neighbours */
    CONNECTIONS_MAX = 640 /* of one process: links, and strangers at the door */
};

#define STREAM_MAX ((UINT64_C(1) << 48) - 1) /* the name of a round's chunks, see inner_header */

#endif
