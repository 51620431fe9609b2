package certfiles

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func configOf(f testca.Files) Config {
	return Config{CA: f.CA, Certificate: f.Cert, Key: f.Key, Refresh: time.Minute}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		given, text string
		want        Config
		err         string
	}{
		{given: "nothing", text: `{}`, want: Config{Refresh: 10 * time.Minute}},
		{given: "everything", text: `{"ca_certificate_file": "/ca", "spiffe_trust_bundle_map_file": "/map", "certificate_file": "/cert", "private_key_file": "/key",
			"refresh_interval": "1.5s", "later": 1}`, want: Config{CA: "/ca", SPIFFEBundleMap: "/map", Certificate: "/cert", Key: "/key", Refresh: 1500 * time.Millisecond}},
		{given: "a certificate without its key", text: `{"certificate_file": "/cert"}`,
			err: "private_key_file: expected the path of a file, as certificate_file is given, found nothing"},
		{given: "a key without its certificate", text: `{"private_key_file": "/key"}`,
			err: "certificate_file: expected the path of a file, as private_key_file is given, found nothing"},
		{given: "wrong types", text: `{"spiffe_trust_bundle_map_file": 5551234, "refresh_interval": 5551234}`,
			err: "spiffe_trust_bundle_map_file: expected the path of a file, found a number\n" +
				"refresh_interval: expected a duration greater than 0 such as \"600s\", found a number"},
		{given: "a certificate in place of its path", text: `{"ca_certificate_file": "-----BEGIN 5551234"}`,
			err: "ca_certificate_file: expected the path of a file, found the content of one"},
		{given: "other wrong values", text: `{"ca_certificate_file": ["/c"], "spiffe_trust_bundle_map_file": "", "refresh_interval": "600"}`,
			err: "ca_certificate_file: expected the path of a file, found a list\n" +
				"spiffe_trust_bundle_map_file: expected the path of a file, found an empty string\n" +
				"refresh_interval: expected a duration greater than 0 such as \"600s\", found a string that is no duration"},
		{given: "no interval", text: `{"refresh_interval": "0s"}`,
			err: "refresh_interval: expected a duration greater than 0 such as \"600s\", found one that is not"},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			got, err := Parse(json.RawMessage(test.text))
			if test.err == "" {
				if err != nil || got != test.want {
					t.Errorf("got %+v and error %v, want %+v", got, err, test.want)
				}
				return
			}
			var list *faults.Faults
			if !errors.As(err, &list) || err.Error() != test.err {
				t.Errorf("got error %v, want the faults %s", err, test.err)
			}
		})
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	crt, key := ca.Leaf()
	_, otherKey := ca.Leaf()
	for _, test := range []struct {
		given   string
		prepare func(testca.Files)
		want    string
	}{
		{"no CA file", func(d testca.Files) { os.Remove(d.CA) },
			"ca_certificate_file: stat CA: no such file or directory"},
		{"a CA file without certificates", func(d testca.Files) { d.Write(d.CA, key) },
			"ca_certificate_file CA: expected certificates in PEM form, found none"},
		{"no certificate", func(d testca.Files) { os.Remove(d.Cert) },
			"certificate_file: stat CERT: no such file or directory"},
		{"no key", func(d testca.Files) { os.Remove(d.Key) },
			"private_key_file: stat KEY: no such file or directory"},
		{"another certificate's key", func(d testca.Files) { d.Write(d.Key, otherKey) },
			"certificate_file CERT with private_key_file KEY: tls: private key does not match public key"},
		{"a directory", func(d testca.Files) { os.Remove(d.Key); os.Mkdir(d.Key, 0o700) },
			"private_key_file: KEY is not a regular file"},
		{"a pipe without a writer", func(d testca.Files) { os.Remove(d.Key); exec.Command("mkfifo", d.Key).Run() },
			"private_key_file: KEY is not a regular file"},
		{"a file that is too large", func(d testca.Files) { d.Write(d.Cert, bytes.Repeat([]byte("a"), 1<<20+1)) },
			"certificate_file: CERT has more than the 1048576 bytes that are allowed"},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			dir := testca.NewFiles(t)
			dir.Write(dir.CA, ca.PEM())
			dir.Write(dir.Cert, crt)
			dir.Write(dir.Key, key)
			test.prepare(dir)
			_, err := NewProvider(configOf(dir)).KeyMaterial(t.Context())
			want := strings.NewReplacer("CA", dir.CA, "CERT", dir.Cert, "KEY", dir.Key).Replace(test.want)
			if err == nil || err.Error() != want {
				t.Errorf("got error %v, want %s", err, want)
			}
		})
	}
}

// material returns what the provider has, and fails the test on an error.
func material(t *testing.T, p certprovider.Provider) *certprovider.KeyMaterial {
	t.Helper()
	m, err := p.KeyMaterial(t.Context())
	xdstest.NoError(t, err)
	return m
}

func sameIdentity(a, b *certprovider.KeyMaterial) bool {
	return bytes.Equal(a.Certs[0].Certificate[0], b.Certs[0].Certificate[0])
}

// gRFC A29: refresh_interval "specifies how frequently the plugin should read the files".
func TestMaterialRotatesAndGoodMaterialStays(t *testing.T) {
	t.Parallel()
	dir := testca.NewFiles(t)
	synctest.Test(t, func(t *testing.T) {
		dir.Issue(testca.New(t))
		p := NewProvider(configOf(dir))
		p.OnKept = func(error, time.Time) {
			xdstest.Equal(t, "OnKept is called without the lock", true, p.mu.TryLock())
			p.mu.Unlock()
		}
		first := material(t, p)

		newCA := testca.New(t)
		dir.Issue(newCA)
		time.Sleep(time.Minute - time.Nanosecond)
		if material(t, p) != first {
			t.Error("the files were read again before the interval was over")
		}
		time.Sleep(time.Nanosecond)
		second := material(t, p)
		if second.Roots.Equal(first.Roots) || sameIdentity(second, first) {
			t.Error("the files were not read again after the interval")
		}

		// Given files of which only one has been replaced yet,
		crt, key := newCA.Leaf()
		dir.Write(dir.Cert, crt)
		time.Sleep(time.Minute)
		if !sameIdentity(material(t, p), second) {
			t.Error("a certificate that does not fit its key replaced a good one")
		}
		// the next handshake finds the rest of them.
		dir.Write(dir.Key, key)
		if sameIdentity(material(t, p), second) {
			t.Error("the files were not read again after a failed attempt")
		}
	})
}

// A certificate that is not valid now, or its issuer's, is read again soon; everything is after a handshake has failed. Neither is for every handshake.
func TestMaterialInDoubtIsReadAgainSoon(t *testing.T) {
	t.Parallel()
	authority, stranger := testca.New(t), testca.New(t)
	valid := func(from, to time.Duration) func() *x509.Certificate {
		return func() *x509.Certificate {
			return &x509.Certificate{NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to)}
		}
	}
	good := valid(-time.Hour, time.Hour)
	for _, test := range []struct {
		given    string
		template func() *x509.Certificate
		ctx      func(context.Context) context.Context
		isSoon   bool
	}{
		{"an expired certificate", testca.Expired, nil, true},
		{"a certificate that is not valid yet", valid(time.Hour, 2*time.Hour), nil, true},
		{"a good certificate", good, nil, false},
		{"a good certificate after a failed handshake", good, Doubt, true},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			dir := testca.NewFiles(t)
			synctest.Test(t, func(t *testing.T) {
				dir.IssueFor(authority, test.template())
				p := NewProvider(configOf(dir))
				first := material(t, p)
				dir.IssueFor(stranger, good())
				ctx := t.Context()
				if test.ctx != nil {
					ctx = test.ctx(ctx)
				}
				ask := func() *certprovider.KeyMaterial {
					t.Helper()
					m, err := p.KeyMaterial(ctx)
					xdstest.NoError(t, err)
					return m
				}
				if ask() != first {
					t.Error("the files were read again at once")
				}
				ctx = t.Context() // A doubt is not forgotten.
				time.Sleep(soon)
				if m := ask(); (m != first) != test.isSoon {
					t.Errorf("read again: %t, want %t", m != first, test.isSoon)
				} else if test.isSoon && sameIdentity(m, first) {
					t.Error("the certificate is the same")
				}
				if test.ctx == nil {
					return
				}
				second := ask()
				dir.IssueFor(authority, good())
				time.Sleep(soon)
				if ask() != second {
					t.Error("the doubt outlives the reading")
				}
			})
		})
	}
}

// Invalid names the certificate of a chain that is not valid.
func TestInvalid(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	at := func(template *x509.Certificate, chain ...[]byte) string {
		pair := ca.Pair(template)
		pair.Certificate = append(pair.Certificate, chain...)
		return Invalid(&pair)
	}
	expired, early := testca.Expired(), testca.Expired()
	early.NotBefore, early.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	issuer := testca.Expired()
	issuer.Subject.CommonName = "an issuer"
	for _, test := range []struct{ got, want string }{
		{at(&x509.Certificate{}, ca.Cert().Raw), ""},
		{at(&x509.Certificate{}, []byte("no certificate")), ""},
		{at(expired), "expired at " + expired.NotAfter.UTC().Format(time.RFC3339)},
		{at(early), "is not valid before " + early.NotBefore.UTC().Format(time.RFC3339)},
		{at(&x509.Certificate{}, ca.Pair(issuer).Certificate[0]), `has an issuer, "CN=an issuer", that expired at ` + issuer.NotAfter.UTC().Format(time.RFC3339)},
		{Invalid(&tls.Certificate{}), ""},
	} {
		xdstest.Equal(t, "text", test.want, test.got)
	}
}

// What is wrong with one of the files does not keep the others in use: a root that was removed is no longer trusted
// although the key is unreadable, and a certificate is replaced although the roots are.
func TestRootsAndIdentityRotateApart(t *testing.T) {
	t.Parallel()
	dir := testca.NewFiles(t)
	synctest.Test(t, func(t *testing.T) {
		dir.Issue(testca.New(t))
		p := NewProvider(configOf(dir))
		first := material(t, p)

		newCA := testca.New(t)
		dir.Write(dir.CA, newCA.PEM())
		os.Remove(dir.Key)
		time.Sleep(time.Minute)
		second := material(t, p)
		if !second.Roots.Equal(newCA.Pool()) {
			t.Error("a removed root is still trusted while the key is missing")
		}
		if !sameIdentity(second, first) {
			t.Error("the certificate was replaced without its key")
		}

		crt, key := newCA.Leaf()
		dir.Write(dir.Cert, crt)
		dir.Write(dir.Key, key)
		os.Remove(dir.CA)
		time.Sleep(time.Minute)
		third := material(t, p)
		if sameIdentity(third, first) {
			t.Error("the old certificate stays in use while the roots are missing")
		}
		if !third.Roots.Equal(newCA.Pool()) {
			t.Error("the last good roots are gone")
		}
	})
}

// A program that does not replace files at once, such as cp, leaves files that end too soon for
// a moment. They must not stay in use for an interval.
func TestFilesThatAreBeingWritten(t *testing.T) {
	t.Parallel()
	one, other := testca.New(t), testca.New(t)
	roots := slices.Concat(one.PEM(), other.PEM())
	issuer := one.Authority("test intermediate CA")
	leaf, key := issuer.Leaf()
	chain := slices.Concat(leaf, issuer.PEM())
	cut := func(text []byte) []byte { return text[:len(text)-20] }
	for _, test := range []struct {
		given       string
		path        func(testca.Files) string
		whole, part []byte
		want        string
	}{
		{"roots", func(d testca.Files) string { return d.CA }, roots, cut(roots), "ca_certificate_file"},
		{"the first root", func(d testca.Files) string { return d.CA }, roots, cut(one.PEM()), "ca_certificate_file"},
		{"a chain", func(d testca.Files) string { return d.Cert }, chain, cut(chain), "certificate_file"},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			dir := testca.NewFiles(t)
			dir.Write(dir.CA, roots)
			dir.Write(dir.Cert, chain)
			dir.Write(dir.Key, key)
			path := test.path(dir)
			dir.Write(path, test.part)
			fresh := NewProvider(configOf(dir))
			if _, err := fresh.KeyMaterial(t.Context()); err == nil || !strings.Contains(err.Error(), test.want+" "+path) {
				t.Errorf("got error %v, want one about %s %s", err, test.want, path)
			}
			dir.Write(path, test.whole)
			m := material(t, fresh)
			want := one.Pool()
			want.AddCert(other.Cert())
			if !m.Roots.Equal(want) || len(m.Certs[0].Certificate) != 2 {
				t.Errorf("got %+v, want both roots and the whole chain", m)
			}
		})
	}
}

// Wherever the second of two certificates is cut, the first one alone is not taken for the whole.
func TestFilesCutAnywhere(t *testing.T) {
	t.Parallel()
	dir := testca.NewFiles(t)
	first, roots := testca.New(t).PEM(), testca.New(t).PEM()
	roots = slices.Concat(first, roots)
	end := len(bytes.TrimRight(roots, "\n"))
	for n := len(first) + 1; n <= end; n++ {
		dir.Write(dir.CA, roots[:n])
		_, err := NewProvider(Config{CA: dir.CA}).KeyMaterial(t.Context())
		if whole := n == end; whole != (err == nil) || !whole && !strings.Contains(err.Error(), "the file may be being written") {
			t.Errorf("%d bytes, which end with %q: got error %v", n, roots[max(0, n-20):n], err)
		}
	}
}

func TestBuildableReadsOnlyWhatIsWanted(t *testing.T) {
	t.Parallel()
	dir := testca.NewFiles(t)
	dir.Issue(testca.New(t))
	build := func(opts certprovider.BuildOptions) certprovider.Provider {
		p, err := configOf(dir).Buildable().Build(opts)
		xdstest.NoError(t, err)
		t.Cleanup(p.Close)
		return p
	}
	both := material(t, build(certprovider.BuildOptions{WantRoot: true, WantIdentity: true}))
	if both.Roots == nil || len(both.Certs) != 1 {
		t.Errorf("got %+v, want roots and an identity", both)
	}
	if again := material(t, build(certprovider.BuildOptions{WantRoot: true, WantIdentity: true})); again != both {
		t.Error("providers of equal configurations do not share their material")
	}
	os.Remove(dir.Key)
	if m := material(t, build(certprovider.BuildOptions{WantRoot: true})); m.Roots == nil || m.Certs != nil {
		t.Errorf("got %+v, want roots alone", m)
	}
	dir.Issue(testca.New(t))
	os.Remove(dir.CA)
	if m := material(t, build(certprovider.BuildOptions{WantIdentity: true})); m.Roots != nil || len(m.Certs) != 1 {
		t.Errorf("got %+v, want an identity alone", m)
	}
}

// gRFC A87: a map with an invalid entry is invalid, an empty one is valid; and the CA file
// is ignored if there is a map.
func TestBundleMapFiles(t *testing.T) {
	t.Parallel()
	dir := testca.NewFiles(t)
	for _, test := range []struct{ given, text, err string }{
		{"no bundles", `{"trust_domains": {}}`, ""},
		{"one bundle", `{"trust_domains": {"example.org": ` + bundleOf(t, testca.New(t), "example.org") + `}, "later": 1}`, ""},
		{"a bundle without roots", `{"trust_domains": {"example.org": {"spiffe_sequence": 1, "keys": []}}}`, ""},
		{"no JSON", `-----BEGIN`, "not JSON: line 1, column 2: invalid character '-' in numeric literal"},
		{"no trust domains", `{"keys": []}`, "trust_domains: expected an object, found nothing"},
		{"a bad name", `{"trust_domains": {"Example!": {"keys": []}}}`,
			`trust_domains["Example!"]: trust domain characters are limited to lowercase letters, numbers, dots, dashes, and underscores`},
		{"two bundles of one domain", `{"trust_domains": {"example.org": {"keys": []}, "spiffe://example.org/any": {"keys": []}}}`,
			`trust_domains["spiffe://example.org/any"]: expected one bundle for trust domain example.org, found two`},
		{"a domain twice", `{"trust_domains": {"example.org": {"keys": []}, "good.org": {"keys": []}, "example.org": {"keys": []}}}`,
			`trust_domains["example.org"]: expected the name once, found it again`},
		{"all domains twice", `{"trust_domains": {"example.org": {"keys": []}}, "trust_domains": {}}`, "trust_domains: expected the key once, found it again"},
		{"a list", `[]`, "expected an object, found a list"},
		{"a list of domains", `{"trust_domains": []}`, "trust_domains: expected an object, found a list"},
		{"a bundle without keys", `{"trust_domains": {"good.org": {"keys": []}, "example.org": {}}}`, `trust_domains["example.org"]: spiffebundle: no authorities found`},
	} {
		t.Run(test.given, func(t *testing.T) {
			file := fmt.Sprintf("%s.%s", dir.CA, strings.ReplaceAll(test.given, " ", "-"))
			dir.Write(file, []byte(test.text))
			m, err := NewProvider(Config{SPIFFEBundleMap: file, CA: "/nowhere"}).KeyMaterial(t.Context())
			if test.err == "" {
				if err != nil || m.SPIFFEBundleMap == nil || m.Roots != nil {
					t.Errorf("got %+v and error %v, want a bundle map alone", m, err)
				}
				return
			}
			if want := "spiffe_trust_bundle_map_file " + file + ": " + test.err; err == nil || err.Error() != want {
				t.Errorf("got error %v, want %s", err, want)
			}
		})
	}
}

// bundleOf returns the SPIFFE bundle of a trust domain with the CA as its only root.
func bundleOf(t *testing.T, ca *testca.CA, domain string) string {
	t.Helper()
	name := spiffeid.RequireTrustDomainFromString(domain)
	text, err := spiffebundle.FromX509Authorities(name, []*x509.Certificate{ca.Cert()}).Marshal()
	xdstest.NoError(t, err)
	return string(text)
}
