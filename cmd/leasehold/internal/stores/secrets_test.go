package stores_test

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// malformed are forms of URLs that people mistype, and that hold a secret.
func malformed(secret string) (urls []string) {
	for _, scheme := range []string{
		"redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "postgres", "postgresql", "http", "https", "memory",
		"quorum", "quorum+redis", "quorum+postgres", "quorum+nats", "reddis", "s3", "nats", "mysql",
	} {
		for _, front := range []string{
			"://u:" + secret + "@h", "://:" + secret + "@h:1", "://" + secret + "@h", "://u:" + secret + "@a,b:2,c", "://u:" + secret + "@[::1", "://u:" + secret + "@h:x",
			":/u:" + secret + "@h", ":u:" + secret + "@h", ":" + secret, ":/:" + secret + "@h:6379", ":///u:" + secret + "@h", "//:" + secret + "@h", ":// u:" + secret + "@h",
		} {
			for _, rest := range []string{"", "/0?nonsense=1", "/db?timeout=x", "?master=m&prefix=%", "/?ca=/none#x"} {
				urls = append(urls, scheme+front+rest)
			}
		}
		for _, query := range []string{
			"password=", "sentinel-password=", "nonsense=1&password=", "token=", "node=redis://u:", "node=redis:u:", "listen=postgres://u:", "listen=host%3Dh+password%3D",
		} {
			for _, behind := range []string{"", "@h", "@h:x/db", "&nonsense=1"} {
				urls = append(urls, scheme+"://h/?"+query+secret+behind, scheme+":?"+query+secret+behind)
			}
		}
	}
	return append(urls, "redis://u:"+secret, "redis://:"+secret, "file://u:"+secret+"@h/x", "file://u:"+secret+"@h", "file:?x="+secret, secret, "u:"+secret+"@h", ":"+secret+"@h", "//:"+secret+"@h:6379", "host=h password="+secret, "host=h password="+secret+" sslmode=x", "/"+secret+"@h")
}

func TestOpen_ErrorsShowNoPartOfASecret(t *testing.T) {
	skip.Racing(t, "it opens one store after the other")
	const first, last = "Zq8wK4", "3vRn5tGh"
	secrets := []string{first + last}
	for special := range strings.SplitSeq(`/ ? # @ : % & = [ ] , ; + \ " $ ? //`, " ") {
		secrets = append(secrets, first+special+last, "7391"+special+last)
	}
	for _, secret := range append(secrets, first+" "+last, first+"%zz"+last, first+"://"+last) {
		for _, rawURL := range malformed(secret) {
			if !strings.Contains(rawURL, "@") && secret[0] == '7' {
				continue // a URL with host and port
			}
			d, err := stores.Open(rawURL)
			if err == nil {
				_ = d.Close()
			} else if piece := pieceOf(err.Error(), secret); piece != "" {
				t.Errorf("%s: %v shows %q", rawURL, err, piece)
			}
		}
	}
}

// pieceOf returns four characters of the secret that the text contains, or "".
func pieceOf(text, secret string) string {
	for i := range len(secret) - 3 {
		if piece := secret[i : i+4]; strings.Contains(text, piece) {
			return piece
		}
	}
	return ""
}
