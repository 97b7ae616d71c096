package overview

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
)

// newSeals returns a cipher for the cursors of this process. The store's own cursors contain
// names of locks that the reader may have no right to.
func newSeals() cipher.AEAD {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	block, _ := aes.NewCipher(key[:])
	seals, _ := cipher.NewGCMWithRandomNonce(block)
	return seals
}

// bond returns the data to which a cursor is bound.
func bond(principal, prefix string) []byte { return fmt.Appendf(nil, "%q %q", principal, prefix) }

// seal returns the cursor of a place, empty for the end.
func (o *Overview) seal(p place, principal, prefix string) string {
	if p == (place{}) {
		return ""
	}
	text := binary.AppendUvarint(nil, uint64(len(p.at)))
	text = append(append(text, p.at...), p.after...)
	return base64.RawURLEncoding.EncodeToString(o.seals.Seal(nil, nil, text, bond(principal, prefix)))
}

// unseal returns the place of a cursor. A cursor of another process, principal or prefix has
// the place of the beginning.
func (o *Overview) unseal(cursor, principal, prefix string) place {
	box, _ := base64.RawURLEncoding.DecodeString(cursor)
	text, err := o.seals.Open(nil, nil, box, bond(principal, prefix))
	if err != nil {
		return place{}
	}
	n, size := binary.Uvarint(text)
	text = text[size:]
	return place{string(text[:n]), string(text[n:])}
}
