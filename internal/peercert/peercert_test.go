package peercert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
)

type template = x509.Certificate

// leaf parses the certificate that a CA makes by an edit of the template.
func leaf(t *testing.T, ca *testca.CA, edit func(*template)) *x509.Certificate {
	t.Helper()
	c := &template{DNSNames: []string{"localhost"}, BasicConstraintsValid: true}
	edit(c)
	parsed, err := x509.ParseCertificate(ca.Pair(c).Certificate[0])
	xdstest.NoError(t, err)
	return parsed
}

func uri(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	xdstest.NoError(t, err)
	return u
}

// check compares an error with the parts that its text has to have; none: there is no error.
func check(t *testing.T, err error, want ...string) {
	t.Helper()
	switch {
	case len(want) == 0 && err != nil:
		t.Errorf("refused: %v", err)
	case len(want) > 0 && err == nil:
		t.Errorf("accepted, want an error with %q", want)
	case err != nil:
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q, want it to contain %q", err, part)
			}
		}
	}
}

func exact(s string) Matcher { return matcher(AnySAN, matching.StringExact, s) }

func matcher(typ SANType, kind matching.StringKind, s string) Matcher {
	return Matcher{typ, matching.NewString(kind, s, false)}
}

// gRFC A29, "CDS for Client Side Security": the certificate has to be valid by the roots.
func TestChain(t *testing.T) {
	t.Parallel()
	ca, stranger := testca.New(t), testca.New(t)
	middle := ca.Authority("test intermediate CA")
	good := func(*template) {}
	depth := func(n uint32) *uint32 { return &n }
	for _, tc := range []struct {
		name  string
		chain []*x509.Certificate
		depth *uint32
		want  []string
	}{
		{"signed by the root", []*x509.Certificate{leaf(t, ca, good)}, nil, nil},
		{"with its intermediate", []*x509.Certificate{leaf(t, middle, good), middle.Cert()}, nil, nil},
		{"no certificate", nil, nil, []string{"no certificate"}},
		{"without its intermediate", []*x509.Certificate{leaf(t, middle, good)}, nil, []string{"unknown authority"}},
		{"of another CA", []*x509.Certificate{leaf(t, stranger, good)}, nil, []string{`DNS "localhost"`, "x509"}},
		{"expired", []*x509.Certificate{leaf(t, ca, func(c *template) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		})}, nil, []string{`DNS "localhost"`, "expired"}},
		{"for clients only", []*x509.Certificate{leaf(t, ca, func(c *template) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		})}, nil, []string{"incompatible key usage"}},
		// CertificateValidationContext.max_verify_depth counts the trust anchor, not the leaf.
		{"as deep as allowed", []*x509.Certificate{leaf(t, middle, good), middle.Cert()}, depth(2), nil},
		{"deeper than allowed", []*x509.Certificate{leaf(t, middle, good), middle.Cert()}, depth(1), []string{"max_verify_depth = 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			check(t, (&Requirements{Roots: ca.Pool(), MaxDepth: tc.depth}).Verify(tc.chain), tc.want...)
		})
	}
}

// The certificate of an authority that has expired is named, with the time.
func TestExpiredAuthority(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	template := testca.Expired()
	template.Subject.CommonName, template.IsCA, template.BasicConstraintsValid, template.KeyUsage = "old authority", true, true, x509.KeyUsageCertSign
	pair := ca.Pair(template)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	xdstest.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"a"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, pair.Leaf, key.Public(), pair.PrivateKey)
	xdstest.NoError(t, err)
	signed, err := x509.ParseCertificate(der)
	xdstest.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	want := []string{`DNS "a"`, "old authority", "expired", pair.Leaf.NotAfter.UTC().Format(time.RFC3339)}
	check(t, (&Requirements{Roots: roots}).Verify([]*x509.Certificate{signed}), want...)
	check(t, (&Requirements{Roots: ca.Pool()}).Verify([]*x509.Certificate{signed, pair.Leaf}), want...)
	expired := leaf(t, ca, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
	if err := (&Requirements{Roots: ca.Pool()}).Verify([]*x509.Certificate{expired}); err == nil || strings.Contains(err.Error(), "issuer") {
		t.Errorf("the error of a leaf that has expired names an authority: %v", err)
	}
}

// A leaf signs in the handshake, so that a key usage without digitalSignature forbids it to be a server's (RFC 8446, section
// 4.4.2.2).
func TestKeyUsageOfTheLeaf(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	withUsage := func(usage x509.KeyUsage) *x509.Certificate {
		return leaf(t, ca, func(c *template) { c.KeyUsage = usage })
	}
	empty := leaf(t, ca, func(c *template) {
		c.ExtraExtensions = []pkix.Extension{{Id: oidKeyUsage, Value: []byte{3, 2, 7, 0}}}
	})
	const refused = "its key usage lacks digitalSignature"
	for _, tc := range []struct {
		name string
		cert *x509.Certificate
		want []string
	}{
		{"none", withUsage(0), nil},
		{"digitalSignature", withUsage(x509.KeyUsageDigitalSignature), nil},
		{"digitalSignature and another", withUsage(x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment), nil},
		{"keyEncipherment", withUsage(x509.KeyUsageKeyEncipherment), []string{refused, `DNS "localhost"`}},
		{"cRLSign", withUsage(x509.KeyUsageCRLSign), []string{refused}},
		{"an empty one", empty, []string{refused}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			check(t, (&Requirements{Roots: ca.Pool()}).Verify([]*x509.Certificate{tc.cert}), tc.want...)
		})
	}
}

// A URI SAN is compared as the certificate has it, but for the case of its scheme and host, which means nothing (RFC 3986, section
// 6.2.2.1). Package url drops what it takes for empty.
func TestURIsAreComparedAsTheyAre(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	with := func(san string) *x509.Certificate {
		return leaf(t, ca, func(c *template) {
			var names []byte
			// The second one has the number of URIs in another class of tags, and is none.
			for _, class := range []int{asn1.ClassContextSpecific, asn1.ClassUniversal} {
				name, err := asn1.Marshal(asn1.RawValue{Class: class, Tag: tagURI, Bytes: []byte(san)})
				xdstest.NoError(t, err)
				names = append(names, name...)
			}
			sans, err := asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: names})
			xdstest.NoError(t, err)
			c.DNSNames, c.ExtraExtensions = nil, []pkix.Extension{{Id: oidSANs, Value: sans}}
		})
	}
	const id = "spiffe://domain/a"
	for _, tc := range []struct {
		san             string
		matches, isSVID bool
	}{
		{id, true, true},
		{"SPIFFE://domain/a", true, true},
		{"Spiffe://domain/a", true, true},
		{"spiffe://Domain/a", true, false}, // SPIFFE has trust domains in lower case
		{"spiffe://domain/A", false, true},
		{id + "#", false, false},
		{"SPIFFE://domain/a#", false, false},
		{id + "?", false, false},
		{"spiffe://@domain/a", false, false},
		{"HTTPS://Me@domain/a", false, false},
		{"spiffe://domain/%61", false, false},
	} {
		cert := with(tc.san)
		if got := cert.URIs; len(got) != 1 {
			t.Fatalf("%q: package x509 reads %v", tc.san, got)
		}
		var want, spiffeWant []string
		if !tc.matches {
			want = []string{"certificate check failure", tc.san}
		}
		if !tc.isSVID {
			spiffeWant = []string{"not a SPIFFE certificate", tc.san}
		}
		check(t, (&Requirements{Roots: ca.Pool(), SANs: []Matcher{exact(id)}}).Verify([]*x509.Certificate{cert}), want...)
		check(t, (&Requirements{Bundles: bundle(t, "domain", ca)}).Verify([]*x509.Certificate{cert}), spiffeWant...)
		check(t, (&Requirements{Roots: ca.Pool(), SANs: []Matcher{exact(tc.san)}}).Verify([]*x509.Certificate{cert}))
	}
}

// gRFC A29, "Server Authorization aka Subject-Alt-Name Checks".
func TestSANMatchers(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	all := leaf(t, ca, func(c *template) {
		c.DNSNames = []string{"*.example.com", "Plain.example.org"}
		c.URIs = []*url.URL{uri(t, "spiffe://domain/ns/a")}
		c.EmailAddresses = []string{"a@example.com"}
		c.IPAddresses = []net.IP{net.ParseIP("2001:DB8:0::01"), net.ParseIP("10.0.0.1")}
	})
	none := leaf(t, ca, func(c *template) { c.DNSNames = nil })
	for _, tc := range []struct {
		name    string
		cert    *x509.Certificate
		sans    []Matcher
		accepts bool
	}{
		{"an empty list matches", all, nil, true},
		{"an empty list matches no SANs", none, nil, true},
		{"a matcher fails without SANs", none, []Matcher{matcher(AnySAN, matching.StringPrefix, "a")}, false},
		{"a URI", all, []Matcher{exact("spiffe://domain/ns/a")}, true},
		{"an email address", all, []Matcher{exact("a@example.com")}, true},
		{"an IPv4 address", all, []Matcher{exact("10.0.0.1")}, true},
		{"an IPv6 address in canonical form", all, []Matcher{exact("2001:db8::1")}, true},
		{"an IPv6 address in another form", all, []Matcher{exact("2001:DB8:0::01")}, false},
		{"exact is case-insensitive for DNS", all, []Matcher{exact("plain.EXAMPLE.org")}, true},
		{"exact is case-sensitive for URIs", all, []Matcher{exact("spiffe://domain/NS/a")}, false},
		{"ignore_case", all, []Matcher{{AnySAN, matching.NewString(matching.StringExact, "spiffe://domain/NS/a", true)}}, true},
		{"a wildcard", all, []Matcher{exact("api.example.com")}, true},
		{"the scheme and host of an exact URI in capitals", all, []Matcher{exact("SPIFFE://Domain/ns/a")}, true},
		{"and its path", all, []Matcher{exact("SPIFFE://Domain/NS/a")}, false},
		{"the scheme and host of a URI's prefix in capitals", all, []Matcher{matcher(URI, matching.StringPrefix, "SPIFFE://DOM")}, true},
		{"any one of many", all, []Matcher{exact("no"), exact("api.example.com")}, true},
		{"none of many", all, []Matcher{exact("no"), exact("neither")}, false},
		{"prefix", all, []Matcher{matcher(AnySAN, matching.StringPrefix, "spiffe://domain/")}, true},
		{"prefix of a DNS name", all, []Matcher{matcher(DNS, matching.StringPrefix, "Plain.")}, true},
		{"suffix", all, []Matcher{matcher(AnySAN, matching.StringSuffix, "/ns/a")}, true},
		{"contains", all, []Matcher{matcher(AnySAN, matching.StringContains, "domain")}, true},
		{"a prefix is not matched as a wildcard", all, []Matcher{matcher(AnySAN, matching.StringPrefix, "api.example")}, false},
		{"safe_regex", all, []Matcher{{AnySAN, matching.String{Kind: matching.StringRegex, Regex: regexp.MustCompile(`^spiffe://[a-z]+/ns/.$`)}}}, true},
		{"a type", all, []Matcher{matcher(URI, matching.StringExact, "spiffe://domain/ns/a")}, true},
		{"another type", all, []Matcher{matcher(DNS, matching.StringExact, "spiffe://domain/ns/a")}, false},
		{"a DNS type with a wildcard", all, []Matcher{matcher(DNS, matching.StringExact, "api.example.com")}, true},
		{"email as IP address", all, []Matcher{matcher(IP, matching.StringContains, "@")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := (&Requirements{Roots: ca.Pool(), SANs: tc.sans}).Verify([]*x509.Certificate{tc.cert})
			if tc.accepts {
				check(t, err)
			} else {
				check(t, err, "certificate check failure", tc.sans[0].String())
			}
		})
	}
}

// gRFC A29, "Server Authorization aka Subject-Alt-Name Checks": "if a SAN entry is empty
// then the match fails for that entry".
func TestAnEmptySANMatchesNothing(t *testing.T) {
	t.Parallel()
	anything := Matcher{AnySAN, matching.String{Kind: matching.StringRegex, Regex: regexp.MustCompile(".*")}}
	if anything.matches(URI, "") || !anything.matches(URI, "a") {
		t.Error("an empty SAN must not match, another one must")
	}
}

// RFC 6125, section 6.4.3, which the proto file names for DNS SANs with wildcards.
func TestWildcards(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		host, san string
		want      bool
	}{
		{"a.example.com", "*.example.com", true},
		{"A.Example.com.", "*.example.COM", true},
		{"a.example.com", "*.example.com.", true},
		{"example.com", "*.example.com", false},
		{"a.b.example.com", "*.example.com", false},
		{".example.com", "*.example.com", false},
		{"a.example.com", "a*.example.com", false},
		{"ab.example.com", "a*.example.com", false},
		{"ab.example.com", "*b.example.com", false},
		{"a.b.example.com", "a.*.example.com", false},
		{"a.b.com", "*.*.com", false},
		{"a", "*", false},
		{"a", "*..", false},
		{"a.*.com", "*.*.com", false},
		{"a.", "*.", false},
		{"*.example.com", "*.example.com", true},
		{"a*.example.com", "a*.example.com", false},
		{"10.0.0.1", "*.0.0.1", false},
		// An exact matcher may be for a name of another type, which no DNS SAN stands for.
		{"admin@mail.example.com", "*.example.com", false},
		{"admin@example.com", "*.com", false},
		{"spiffe://prod.example.com", "*.example.com", false},
		{"https://prod.example.com", "*.example.com", false},
		{"spiffe://prod.example.com/ns/a", "*.example.com/ns/a", false},
		{"", "", false},
		{"", "*.example.com", false},
	} {
		if got := dnsMatches(tc.host, tc.san); got != tc.want {
			t.Errorf("host %q and SAN %q: %t, want %t", tc.host, tc.san, got, tc.want)
		}
	}
}

// gRFC A101, "SAN SNI validation": by exact DNS names, instead of the SAN matchers. A server whose name is
// an IP address is known by the SANs that are IP addresses.
func TestServerName(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	cert := leaf(t, ca, func(c *template) {
		c.DNSNames = []string{"*.example.com", "10.0.0.9"}
		c.URIs = []*url.URL{{Scheme: "https", Host: "uri.example.org"}, uri(t, "https://10.0.0.9")}
		c.IPAddresses = []net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("2001:db8::1")}
	})
	for name, want := range map[string][]string{
		"a.example.com":           nil,
		"b.example.org":           {`DNS "*.example.com"`, `"b.example.org"`, "auto_sni_san_validation"},
		"https://uri.example.org": {"auto_sni_san_validation"},
		"10.0.0.1":                nil,
		"::ffff:10.0.0.1":         nil,
		"2001:DB8:0::01":          nil,
		"2001:db8::1%eth0":        nil,
		"10.0.0.2":                {`IP address "10.0.0.1"`, `"10.0.0.2"`},
		"2001:db8::2":             {`"2001:db8::2"`},
		"10.0.0.9":                {`DNS "10.0.0.9"`, "not for the server name"}, // no IP address is a DNS name
	} {
		r := &Requirements{Roots: ca.Pool(), ServerName: name, SANs: []Matcher{exact("no such SAN")}}
		check(t, r.Verify([]*x509.Certificate{cert}), want...)
	}
}

func bundle(t *testing.T, domain string, ca *testca.CA) map[string]*spiffebundle.Bundle {
	t.Helper()
	of := spiffeid.RequireTrustDomainFromString(domain)
	return map[string]*spiffebundle.Bundle{domain: spiffebundle.FromX509Authorities(of, []*x509.Certificate{ca.Cert()})}
}

// gRFC A87, "Configuring SPIFFE Verification via xDS".
func TestSPIFFEBundles(t *testing.T) {
	t.Parallel()
	ca, other := testca.New(t), testca.New(t)
	withURIs := func(uris ...string) func(*template) {
		return func(c *template) {
			for _, s := range uris {
				c.URIs = append(c.URIs, uri(t, s))
			}
		}
	}
	const id = "spiffe://domain/ns/a"
	for _, tc := range []struct {
		name    string
		cert    *x509.Certificate
		bundles map[string]*spiffebundle.Bundle
		sans    []Matcher
		want    []string
	}{
		{"of the trust domain", leaf(t, ca, withURIs(id)), bundle(t, "domain", ca), nil, nil},
		{"a SAN that matches", leaf(t, ca, withURIs(id)), bundle(t, "domain", ca), []Matcher{exact(id)}, nil},
		{"a SAN that does not", leaf(t, ca, withURIs(id)), bundle(t, "domain", ca), []Matcher{exact("spiffe://domain/ns/b")}, []string{id, "ns/b"}},
		{"of another trust domain", leaf(t, ca, withURIs(id)), bundle(t, "other", ca), nil, []string{`trust domain "domain"`}},
		{"signed by the root of another trust domain", leaf(t, other, withURIs(id)), bundle(t, "domain", ca), nil, []string{"x509"}},
		{"an empty map is a valid one", leaf(t, ca, withURIs(id)), map[string]*spiffebundle.Bundle{}, nil, []string{"no SPIFFE bundle"}},
		{"without a URI", leaf(t, ca, withURIs()), bundle(t, "domain", ca), nil, []string{"not a SPIFFE certificate", "0 URI SANs"}},
		{"two URIs", leaf(t, ca, withURIs(id, id+"b")), bundle(t, "domain", ca), nil, []string{"2 URI SANs"}},
		{"a URI of another scheme", leaf(t, ca, withURIs("https://domain/ns/a")), bundle(t, "domain", ca), nil, []string{"scheme"}},
		{"a malformed ID", leaf(t, ca, withURIs("spiffe://domain/ns//a")), bundle(t, "domain", ca), nil, []string{"not a SPIFFE certificate"}},
		{"a CA", leaf(t, ca, func(c *template) { withURIs(id)(c); c.IsCA = true }), bundle(t, "domain", ca), nil, []string{"of a CA"}},
		{"one that may sign", leaf(t, ca, func(c *template) { withURIs(id)(c); c.KeyUsage = x509.KeyUsageCRLSign }),
			bundle(t, "domain", ca), nil, []string{"cRLSign"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// The roots beside the bundles are not used.
			r := &Requirements{Roots: other.Pool(), Bundles: tc.bundles, SANs: tc.sans}
			check(t, r.Verify([]*x509.Certificate{tc.cert}), tc.want...)
		})
	}
}

// What a peer sends does not make errors grow.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	cert := leaf(t, ca, func(c *template) {
		c.DNSNames = nil
		for range 1000 {
			c.DNSNames = append(c.DNSNames, strings.Repeat("long.", 40)+"com")
		}
	})
	err := (&Requirements{Roots: ca.Pool(), SANs: []Matcher{exact("a")}}).Verify([]*x509.Certificate{cert})
	if check(t, err, "and 990 more"); len(err.Error()) > 5000 {
		t.Errorf("the error has %d characters", len(err.Error()))
	}
	for _, tc := range []struct {
		names int
		want  string
	}{
		{0, "without SANs"},
		{1, `DNS "a"`},
		{10, `DNS "a"` + strings.Repeat(`, DNS "a"`, 9)},
		{11, `DNS "a"` + strings.Repeat(`, DNS "a"`, 9) + " and 1 more"},
		{13, `DNS "a"` + strings.Repeat(`, DNS "a"`, 9) + " and 3 more"},
	} {
		if got := describe(&x509.Certificate{DNSNames: slices.Repeat([]string{"a"}, tc.names)}); got != tc.want {
			t.Errorf("%d names: %s, want %s", tc.names, got, tc.want)
		}
	}
}

// Errors quote matchers, and a Cluster whose matchers are equal keeps its connections.
func TestMatchersAsTextAndEqual(t *testing.T) {
	t.Parallel()
	regex := func(s string) Matcher {
		return Matcher{AnySAN, matching.String{Kind: matching.StringRegex, Regex: regexp.MustCompile(s)}}
	}
	all := []struct {
		matcher func() Matcher
		text    string
	}{
		{func() Matcher { return exact("a") }, `exact "a"`},
		{func() Matcher { return exact("b") }, `exact "b"`},
		{func() Matcher { return matcher(DNS, matching.StringExact, "a") }, `DNS exact "a"`},
		{func() Matcher { return matcher(AnySAN, matching.StringPrefix, "a") }, `prefix "a"`},
		{func() Matcher { return Matcher{AnySAN, matching.String{Value: "a", IgnoreCase: true}} }, `exact "a" (ignore_case)`},
		{func() Matcher { return regex("a") }, `safe_regex "a"`},
		{func() Matcher { return regex("b") }, `safe_regex "b"`},
	}
	for i, a := range all {
		if got := a.matcher().String(); got != a.text {
			t.Errorf("matcher %d is %s, want %s", i, got, a.text)
		}
		for j, b := range all {
			if got := a.matcher().Equal(b.matcher()); got != (i == j) {
				t.Errorf("%s and %s are equal: %t", a.text, b.text, got)
			}
		}
	}
}

// What package x509 and TLS quote from a certificate does not make errors grow either.
func TestQuotationsAreBounded(t *testing.T) {
	t.Parallel()
	long := pkix.Name{CommonName: strings.Repeat("long", 25_000)}
	authority := func() tls.Certificate {
		return testca.New(t).Pair(&template{Subject: long, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	}
	issuer, impostor := authority(), authority()
	signed, err := x509.CreateCertificate(rand.Reader, &template{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)},
		issuer.Leaf, issuer.Leaf.PublicKey, issuer.PrivateKey)
	xdstest.NoError(t, err)
	cert, err := x509.ParseCertificate(signed)
	xdstest.NoError(t, err)
	given := (&Requirements{Roots: testca.New(t).Pool()}).Verify([]*x509.Certificate{cert, impostor.Leaf})
	if check(t, given, "longlong"); len(given.Error()) < 100_000 {
		t.Fatalf("the error has %d characters, which need no bound", len(given.Error()))
	}
	err = Bounded(given)
	check(t, err, "the server's certificate (without SANs) is not valid", "unknown authority", "…")
	if len(err.Error()) > 10_000 {
		t.Errorf("the error has %d characters", len(err.Error()))
	}
	if got := Bounded(errors.New("a\r\nb\x1b[2J")).Error(); got != `a\r\nb\x1b[2J` {
		t.Errorf("control characters: got %q", got)
	}
}

func FuzzDNSMatches(f *testing.F) {
	f.Add("a.example.com", "*.example.com")
	f.Fuzz(func(t *testing.T, host, san string) {
		if !dnsMatches(host, san) {
			return
		}
		// What matches has as many labels.
		trim := func(s string) int { return strings.Count(strings.TrimSuffix(s, "."), ".") }
		if trim(host) != trim(san) {
			t.Errorf("%q matches %q", host, san)
		}
	})
}
