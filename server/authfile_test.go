package server_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/server/auth"
)

// hashed is a token as the file names it.
func hashed(token string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token)))
}

// roles returns a file with a principal for each combination of rights in the tests. The token of
// each is its name.
func roles() string {
	role := func(name, rights string) string {
		return fmt.Sprintf(`{"name": %q, "tokens": [%q], "rights": [%s]}`, name, hashed(name), rights)
	}
	return `{"principals": [` + strings.Join([]string{
		role("shop", `{"verbs": ["acquire"], "prefix": "orders/"}`),
		role("desk", `{"verbs": ["read"], "prefix": "orders/"}, {"verbs": ["acquire", "read"], "prefix": "desk/"}`),
		role("admin", `{"verbs": ["acquire", "read", "break"], "prefix": ""}`),
	}, ",") + `]}`
}

// writeFile writes text to a new file, and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	noErr(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func openAuth(t *testing.T, text string) (*auth.File, string) {
	t.Helper()
	path := writeFile(t, "auth.json", text)
	f, err := auth.OpenFile(path)
	noErr(t, err)
	return f, path
}

// asWho returns a request with an Authorization header, if authorization is not empty.
func asWho(authorization string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

func TestAuthFile_KnowsPrincipalsByTheirTokens(t *testing.T) {
	f, _ := openAuth(t, roles())
	for authorization, want := range map[string]string{
		"Bearer shop":                            "shop",
		"bearer   admin":                         "admin",
		"":                                       "",
		"Bearer":                                 "",
		"Bearer ":                                "",
		"Bearer nobody":                          "",
		"Bearer shop2":                           "",
		"Basic c2hvcDo=":                         "",
		"shop":                                   "",
		"Bearer " + hashed("shop"):               "",
		"Bearer " + strings.Repeat("x", 1<<16):   "",
		"Bearer " + hashed("shop")[len("sha2"):]: "",
	} {
		p, err := f.Authenticate(asWho(authorization))
		if got := name(p); got != want || (err == nil) != (want != "") {
			t.Errorf("%.40q is %q, %v; want %q", authorization, got, err, want)
		}
	}
	twice := asWho("Bearer shop")
	twice.Header.Add("Authorization", "Bearer admin")
	if p, err := f.Authenticate(twice); err == nil {
		t.Errorf("two tokens are %q", name(p))
	}
}

func name(p auth.Principal) string {
	if p == nil {
		return ""
	}
	return p.Name()
}

func TestAuthFile_RightsAreByVerbAndPrefix(t *testing.T) {
	f, _ := openAuth(t, roles())
	for right, may := range map[[3]string]bool{
		{"shop", "acquire", "orders/42"}: true,
		{"shop", "acquire", "orders/"}:   true,
		{"shop", "acquire", "orders"}:    false,
		{"shop", "acquire", "Orders/42"}: false,
		{"shop", "read", "orders/42"}:    false,
		{"shop", "break", "orders/42"}:   false,
		{"shop", "acquire", ""}:          false,
		{"desk", "read", "orders/42"}:    true,
		{"desk", "acquire", "orders/42"}: false,
		{"desk", "acquire", "desk/1"}:    true,
		{"admin", "break", "anything"}:   true,
		{"admin", "read", ""}:            true,
	} {
		p, err := f.Authenticate(asWho("Bearer " + right[0]))
		noErr(t, err)
		if got := p.May(auth.Verb(right[1]), right[2]); got != may {
			t.Errorf("%q: %t", right, got)
		}
	}
}

func TestAuthFile_ReloadTakesEffectAndAWrongFileDoesNot(t *testing.T) {
	f, path := openAuth(t, roles())
	rewrite := func(text string) error {
		t.Helper()
		noErr(t, os.WriteFile(path, []byte(text), 0o600))
		return f.Reload()
	}
	known := func(token string) bool {
		_, err := f.Authenticate(asWho("Bearer " + token))
		return err == nil
	}
	if err := rewrite(`{"principals": []}`); !errors.Is(err, driver.ErrInvalid) || !known("shop") {
		t.Errorf("after a wrong file: %v, known %t", err, known("shop"))
	}
	noErr(t, os.Remove(path))
	if err := f.Reload(); !errors.Is(err, os.ErrNotExist) || !known("shop") {
		t.Errorf("without a file: %v, known %t", err, known("shop"))
	}
	if err := rewrite(strings.ReplaceAll(roles(), hashed("shop"), hashed("renewed"))); err != nil || known("shop") || !known("renewed") {
		t.Errorf("after another file: %v, old %t, new %t", err, known("shop"), known("renewed"))
	}
}

func TestAuthFile_RefusesWhatItDoesNotUnderstand(t *testing.T) {
	token, right := `"tokens": ["`+hashed("x")+`"]`, `"rights": [{"verbs": ["read"], "prefix": ""}]`
	one := func(fields ...string) string { return `{"principals": [{` + strings.Join(fields, ",") + `}]}` }
	for why, text := range map[string]string{
		"empty":                  ``,
		"not JSON":               `shop: secret`,
		"more behind":            one(`"name": "a"`, token, right) + `{}`,
		"nobody":                 `{"principals": []}`,
		"unknown field":          one(`"name": "a"`, token, right, `"admin": true`),
		"no name":                one(token, right),
		"control character":      one(`"name": "a\nb"`, token, right),
		"no token":               one(`"name": "a"`, right),
		"no rights":              one(`"name": "a"`, token),
		"token in the clear":     one(`"name": "a"`, `"tokens": ["secret"]`, right),
		"hash too short":         one(`"name": "a"`, `"tokens": ["sha256:abcd"]`, right),
		"verb unknown":           one(`"name": "a"`, token, `"rights": [{"verbs": ["write"], "prefix": ""}]`),
		"verb empty":             one(`"name": "a"`, token, `"rights": [{"verbs": [""], "prefix": ""}]`),
		"no verbs":               one(`"name": "a"`, token, `"rights": [{"verbs": [], "prefix": ""}]`),
		"prefix left out":        one(`"name": "a"`, token, `"rights": [{"verbs": ["read"]}]`),
		"prefix too long":        one(`"name": "a"`, token, `"rights": [{"verbs": ["read"], "prefix": "`+strings.Repeat("x", 513)+`"}]`),
		"certificate of no kind": one(`"name": "a"`, `"certificates": ["shop.internal"]`, right),
		"certificate of no name": one(`"name": "a"`, `"certificates": ["dns:"]`, right),
		"token twice":            one(`"name": "a"`, right, `"tokens": ["`+hashed("x")+`", "`+hashed("x")+`"]`),
		"token twice, not alike": one(`"name": "a"`, right, `"tokens": ["`+hashed("x")+`", "`+strings.Replace(hashed("x"), "d", "D", 1)+`"]`),
		"field twice":            one(`"name": "a"`, token, right, right),
		"prefix twice":           one(`"name": "a"`, token, `"rights": [{"verbs": ["read"], "prefix": "orders/", "prefix": ""}]`),
		"prefix twice, in two":   one(`"name": "a"`, token, `"rights": [{"verbs": ["read"], "prefix": "orders/", "Prefix": ""}]`),
		"name twice":             `{"principals": [{"name": "a",` + token + `,` + right + `}, {"name": "a", "tokens": ["` + hashed("y") + `"],` + right + `}]}`,
		"larger than 1 MiB":      one(`"name": "a"`, token, right) + strings.Repeat(" ", 1<<20),
	} {
		_, err := auth.OpenFile(writeFile(t, "auth.json", text))
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", why, err)
		}
		if err != nil && (len(err.Error()) > 500 || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: the error reveals a secret: %v", why, err)
		}
	}
}

// FuzzAuthFile looks for files that are accepted although they give no rights, and for panics.
func FuzzAuthFile(f *testing.F) {
	f.Add([]byte(roles()))
	f.Add([]byte(`{"principals": [{"name": "a", "certificates": ["dns:a"], "rights": [{"verbs": ["read"], "prefix": "é"}]}]}`))
	f.Add([]byte(`{"principals": [{}]}`))
	path := filepath.Join(f.TempDir(), "auth.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		noErr(t, os.WriteFile(path, text, 0o600))
		file, err := auth.OpenFile(path)
		if err != nil {
			return
		}
		for _, who := range []string{"", "Bearer ", "Bearer x"} {
			if p, err := file.Authenticate(asWho(who)); err == nil {
				t.Errorf("%q is %q", who, p.Name())
			}
		}
	})
}

// FuzzAuthorization looks for headers without a valid token that are accepted.
func FuzzAuthorization(f *testing.F) {
	path := filepath.Join(f.TempDir(), "auth.json")
	noErr(f, os.WriteFile(path, []byte(roles()), 0o600))
	file, err := auth.OpenFile(path)
	noErr(f, err)
	for _, text := range []string{"Bearer shop", "bearer  admin", "Bearer", "Basic x", "Bearer shop ", "Bearer\tshop"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := asWho("")
		r.Header["Authorization"] = []string{text}
		p, err := file.Authenticate(r)
		if err != nil {
			return
		}
		scheme, token, _ := strings.Cut(text, " ")
		if !strings.EqualFold(scheme, "bearer") || strings.TrimLeft(token, " ") != p.Name() {
			t.Errorf("%q is %q", text, p.Name())
		}
	})
}
