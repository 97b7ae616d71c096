package filedriver

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"net/url"
	"strings"
)

// maxSpelled is the length up to which the name of a file contains its key. File systems
// allow 255 bytes, some encryption layers 143.
const maxSpelled = 120

const suffix = ".room"

// fileName returns the name of the file of a key. Different keys have different names,
// also where the file system folds case or Unicode normal forms: all but lower-case ASCII
// letters, digits, '-', '_' and '.' are escaped. The prefix avoids names that are special
// on Windows. The name of a long key is its hash.
func fileName(key string) string {
	var b strings.Builder
	b.Grow(len(key) + 16)
	b.WriteString("k-")
	for i := range len(key) {
		if c := key[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	if b.Len() > maxSpelled {
		sum := sha256.Sum256([]byte(key))
		return "h-" + hex.EncodeToString(sum[:]) + suffix
	}
	b.WriteString(suffix)
	return b.String()
}

const digits = "0123456789abcdef"

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

// keyOf returns the key in a file name. ok is false if the name is a hash, or no name of
// a record.
func keyOf(name string) (key string, ok bool) {
	rest, prefixed := strings.CutPrefix(name, "k-")
	rest, suffixed := strings.CutSuffix(rest, suffix)
	key, err := url.PathUnescape(rest)
	return key, prefixed && suffixed && err == nil && fileName(key) == name
}

// isOurName reports whether a file of this name holds a record or a table of ids.
func isOurName(name string) bool {
	if base, ok := strings.CutSuffix(name, idsSuffix); ok {
		name = base + suffix
	}
	if hash, ok := strings.CutPrefix(name, "h-"); ok {
		hash, ok = strings.CutSuffix(hash, suffix)
		_, err := hex.DecodeString(hash)
		return ok && err == nil && len(hash) == 2*sha256.Size
	}
	_, ok := keyOf(name)
	return ok
}

// shards is the number of lock files and of record directories.
const shards = 64

func (s *Driver) shardOf(name string) *shard {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return s.shards[h.Sum32()%shards]
}
