package overview

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
)

// newSeals returns what seals the cursors of this process: those of the store have names of
// locks that their reader may not know.
func newSeals() cipher.AEAD {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	block, _ := aes.NewCipher(key[:])
	seals, _ := cipher.NewGCMWithRandomNonce(block)
	return seals
}

// bond is what a cursor is good for.
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

// unseal returns the place of a cursor: the beginning for one that seal has not made.
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
