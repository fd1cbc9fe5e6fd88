#!/usr/bin/env python3
"""bpe: byte-level BPE straight from its publications, to hold replica/tokenizer against.

Trains a small vocabulary (Sennrich et al. 2016, Algorithm 1, over bytes), writes it in each of the
forms that the program reads, and encodes texts as GPT-2's encoder.py does: word by word, the pair
of the lowest rank everywhere in the word, again and again. Slow and simple on purpose. Bytes that
are no UTF-8 are tokens of single bytes.

  bpe.py train TEXT... --merges N --to DIR      tokenizer.json, vocab.bpe, encoder.json, llama.json
  bpe.py text --seed N                          a text of many scripts, spaces and bad bytes
  bpe.py encode DIR/FILE TEXT                   numbers, one a line
"""
import argparse
import collections
import json
import random
import sys
import unicodedata

import regex

SPACE = r"\p{White_Space}"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END = "<|endoftext|>"


def compiled(pattern):
    return regex.compile(pattern.replace(r"\s", SPACE).replace(r"\S", SPACE.replace("p", "P", 1)))


def alphabet():
    """The character of each byte, in GPT-2's order."""
    seen = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in seen]
    return {b: chr(b) for b in seen} | {b: chr(256 + i) for i, b in enumerate(rest)}


LETTER = alphabet()
BYTE = {letter: byte for byte, letter in LETTER.items()}


def pieces(data):
    """Runs of valid UTF-8, and single bytes that are none."""
    text = data.decode("utf-8", errors="surrogateescape")
    run = []
    for c in text:
        if 0xDC80 <= ord(c) <= 0xDCFF:
            if run:
                yield "".join(run)
            run = []
            yield bytes([ord(c) - 0xDC00])
        else:
            run.append(c)
    if run:
        yield "".join(run)


def words(data, pattern):
    for piece in pieces(data):
        if isinstance(piece, bytes):
            yield piece
        else:
            for word in pattern.findall(piece):
                yield word.encode()


def learn(data, count):
    """The most frequent pair becomes a token, `count` times; ties by their spelling."""
    texts = collections.Counter(words(data, compiled(GPT2)))
    parts = {w: [bytes([b]) for b in w] for w in texts}
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for word, tokens in parts.items():
        for pair in zip(tokens, tokens[1:]):
            pairs[pair] += texts[word]
            where[pair].add(word)
    merges, made = [], {bytes([b]) for b in range(256)}
    while len(merges) < count:
        best = max((p for p in pairs if p[0] + p[1] not in made), key=lambda p: (pairs[p], p))
        merges.append(best)
        made.add(best[0] + best[1])
        for word in list(where[best]):
            for pair in zip(parts[word], parts[word][1:]):
                pairs[pair] -= texts[word]
                where[pair].discard(word)
            parts[word] = joined(parts[word], best)
            for pair in zip(parts[word], parts[word][1:]):
                pairs[pair] += texts[word]
                where[pair].add(word)
    return merges


def joined(tokens, pair):
    out, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and (tokens[i], tokens[i + 1]) == pair:
            out.append(tokens[i] + tokens[i + 1])
            i += 2
        else:
            out.append(tokens[i])
            i += 1
    return out


def spelt(token):
    return "".join(LETTER[b] for b in token)


def write(folder, merges):
    tokens = [bytes([b]) for b in LETTER] + [a + b for a, b in merges]
    vocab = {spelt(t): i for i, t in enumerate(tokens)}
    lines = [f"{spelt(a)} {spelt(b)}" for a, b in merges]
    added = {"id": len(vocab), "content": END, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
    with open(f"{folder}/vocab.bpe", "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "\n".join(lines) + "\n")
    with open(f"{folder}/encoder.json", "w", encoding="utf-8") as f:
        json.dump(vocab | {END: len(vocab)}, f)
    gpt2 = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "vocab": vocab | {END: len(vocab)},
                  "merges": lines},
    }
    with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(gpt2, f, ensure_ascii=False)
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    llama = gpt2 | {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "added_tokens": [added, added | {"id": len(vocab) + 1, "content": "<|end"}],
        "model": gpt2["model"] | {"ignore_merges": True, "vocab": vocab,
                                  "merges": [[spelt(a), spelt(b)] for a, b in merges]},
    }
    with open(f"{folder}/llama.json", "w", encoding="utf-8") as f:
        json.dump(llama, f)


def encoder(path):
    """What encodes, from a tokenizer.json."""
    with open(path, encoding="utf-8") as f:
        made = json.load(f)
    model, is_llama = made["model"], "ignore_merges" in made["model"]
    vocab = {bytes(BYTE[c] for c in t): i for t, i in model["vocab"].items() if t != END}
    pairs = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    ranks = {tuple(bytes(BYTE[c] for c in h) for h in p): r for r, p in enumerate(pairs)}
    added = {t["content"].encode(): t["id"] for t in made["added_tokens"]}
    cut = regex.compile(b"(" + b"|".join(regex.escape(t) for t in sorted(added, key=len, reverse=True)) + b")")
    pattern, known = compiled(LLAMA3 if is_llama else GPT2), {}

    def word_tokens(word):
        if is_llama and word in vocab:
            return [vocab[word]]
        tokens = [bytes([b]) for b in word]
        while len(tokens) > 1:
            best = min(zip(tokens, tokens[1:]), key=lambda p: ranks.get(p, len(ranks)))
            if best not in ranks:
                break
            tokens = joined(tokens, best)
        return [vocab[t] for t in tokens]

    def encode(data):
        for piece in cut.split(data):
            if piece in added:
                yield added[piece]
                continue
            for word in words(piece, pattern):
                if word not in known:
                    known[word] = word_tokens(word)
                yield from known[word]

    return encode


SAMPLES = [
    "The quick brown fox's 12,345 jumps; they're done, we've won't I'll I'M 'S 's 'LL",
    "Füße größer naïve café résumé ǅ ß ſ 'ſ ﬁ", "Привет, мир! Ещё раз.", "Γειά σου Κόσμε", "שלום עולם",
    "مرحبا بالعالم ١٢٣", "नमस्ते दुनिया १२३", "สวัสดีชาวโลก", "你好,世界。一二三", "こんにちは世界ｶﾅ", "안녕하세요 세계",
    "ሰላም ልዑል", "🙂🙃👩‍👩‍👧‍👦🇩🇪👍🏽 ☃️", "½ ² Ⅷ ① ٣ ൧", "a\u0301e\u0300\u200d\u200b\ufeff", END, "<|end", "<|endoftex", "<|",
    "\u00a0\u2003\u3000\u1680\u180e\u2028\u2029\u0085", "x" * 300, "ab" * 200, "\x00\x01\x1c\x1f\x7f", "\r\n\r\n", "\t\t x", "   ",
]
BAD = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x99", b"\xed\xa0\x80", b"\xc0\xaf", b"\x80\x80", b"\xf5\x80\x80\x80"]


def text(seed):
    """Deterministic by `seed`; code points that Unicode 3.2 had, whose classes all tables know."""
    rng = random.Random(seed)
    old = unicodedata.ucd_3_2_0
    points = [c for c in map(chr, range(0x20, 0x10000)) if old.category(c) not in ("Cn", "Cs", "Co")
              and old.category(c) == unicodedata.category(c)]
    out = []
    for _ in range(6000):
        kind = rng.randrange(8)
        if kind < 4:
            out.append(rng.choice(SAMPLES).encode())
        elif kind == 4:
            out.append("".join(rng.choice(points) for _ in range(rng.randrange(1, 9))).encode())
        elif kind == 5:
            out.append("".join(rng.choice(" \n\t\r\u00a0") for _ in range(rng.randrange(1, 6))).encode())
        elif kind == 6:
            out.append(str(rng.randrange(10 ** rng.randrange(1, 9))).encode())
        else:
            out.append(rng.choice(BAD))
        out.append(rng.choice([b" ", b"", b"", b"\n", b"  "]))
    return b"".join(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["train", "text", "encode"])
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--merges", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", default=".")
    args = parser.parse_args()
    if args.what == "text":
        sys.stdout.buffer.write(text(args.seed))
    elif args.what == "train":
        data = b""
        for path in args.paths:
            with open(path, "rb") as f:
                data += f.read()
        write(args.to, learn(data, args.merges))
    else:
        with open(args.paths[1], "rb") as f:
            data = f.read()
        for token in encoder(args.paths[0])(data):
            print(token)


if __name__ == "__main__":
    main()
