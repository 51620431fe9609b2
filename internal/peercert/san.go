package peercert

import (
	"crypto/x509"
	"encoding/asn1"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

// SANType is a type of subject alternative name.
type SANType int

// The types that crypto/x509 reads, and AnySAN for a Matcher of all of them.
const (
	AnySAN SANType = iota
	DNS
	URI
	Email
	IP
)

var sanTypes = [...]string{"any", "DNS", "URI", "email", "IP address"}

// String returns the type's name for errors.
func (t SANType) String() string { return sanTypes[t] }

// Matcher is a condition on one SAN (CertificateValidationContext.match_subject_alt_names,
// of AnySAN, and match_typed_subject_alt_names).
type Matcher struct {
	Type  SANType
	Value matching.String
}

var stringKinds = [...]string{"exact", "prefix", "suffix", "contains", "safe_regex"}

// String describes the matcher for errors, as in `DNS prefix "a"`.
func (m Matcher) String() string {
	value := m.Value.Value
	if m.Value.Kind == matching.StringRegex {
		value = m.Value.Regex.String()
	}
	text := stringKinds[m.Value.Kind] + " " + faults.Quote(value)
	if m.Type != AnySAN {
		text = m.Type.String() + " " + text
	}
	if m.Value.IgnoreCase {
		text += " (ignore_case)"
	}
	return text
}

// Equal reports whether two matchers accept the same SANs, as far as their texts show.
func (m Matcher) Equal(o Matcher) bool {
	regex := func(r *regexp.Regexp) string {
		if r == nil {
			return ""
		}
		return r.String()
	}
	a, b := m.Value, o.Value
	return m.Type == o.Type && a.Kind == b.Kind && a.Value == b.Value && a.IgnoreCase == b.IgnoreCase && regex(a.Regex) == regex(b.Regex)
}

// matches reports whether a SAN fits. An empty one never does. An exact value is compared
// with a DNS name by the rules of DNS, wildcards included. A URI fits as the certificate has it, or in its normal form.
func (m *Matcher) matches(kind SANType, san string) bool {
	switch {
	case san == "" || m.Type != AnySAN && m.Type != kind:
		return false
	case kind == DNS && m.Value.Kind == matching.StringExact:
		return dnsMatches(m.Value.Value, san)
	case kind == URI && !m.Value.Matches(san):
		normal := m.Value
		if normal.Kind == matching.StringExact || normal.Kind == matching.StringPrefix {
			normal.Value = normalURI(normal.Value)
		}
		return normal.Matches(normalURI(san))
	}
	return m.Value.Matches(san)
}

// normalURI returns a URI, or its beginning, with its scheme and host in lower case, whose case means nothing (RFC 3986, section
// 6.2.2.1). All else stays as it is: other URIs that package url takes for equal are different names.
func normalURI(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	host := strings.LastIndexByte(authority, '@') + 1
	return strings.ToLower(scheme) + "://" + authority[:host] + strings.ToLower(authority[host:]) + path
}

// name is a SAN.
type name struct {
	kind  SANType
	value string
}

// names returns the SANs of a certificate. IP addresses are in canonical form (RFC 5952).
func names(c *x509.Certificate) (all []name) {
	add := func(kind SANType, values []string) {
		for _, value := range values {
			all = append(all, name{kind, value})
		}
	}
	add(DNS, c.DNSNames)
	add(URI, uris(c))
	add(Email, c.EmailAddresses)
	for _, ip := range c.IPAddresses {
		all = append(all, name{IP, ip.String()})
	}
	return all
}

// tagURI is the tag of a URI among the SANs (RFC 5280, section 4.2.1.6).
const tagURI = 6

// uris returns the SANs that are URIs as the certificate has them. A url.URL loses what makes two of them
// differ: the "#" of "spiffe://domain/a#".
func uris(c *x509.Certificate) (all []string) {
	e := extension(c, oidSANs)
	if e == nil {
		return nil
	}
	var sans asn1.RawValue
	if _, err := asn1.Unmarshal(e.Value, &sans); err != nil {
		return nil
	}
	for rest := sans.Bytes; len(rest) > 0; {
		var san asn1.RawValue
		var err error
		if rest, err = asn1.Unmarshal(rest, &san); err != nil {
			return nil
		}
		if san.Class == asn1.ClassContextSpecific && san.Tag == tagURI {
			all = append(all, string(san.Bytes))
		}
	}
	return all
}

// isFor reports whether a certificate is for a host: an IP address is compared with the SANs that
// are IP addresses, any other name with DNS SANs (RFC 9525, section 6).
func isFor(c *x509.Certificate, host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		address = address.Unmap().WithZone("")
		return slices.ContainsFunc(c.IPAddresses, func(ip net.IP) bool {
			san, _ := netip.AddrFromSlice(ip)
			return san.Unmap() == address
		})
	}
	return slices.ContainsFunc(c.DNSNames, func(san string) bool { return dnsMatches(host, san) })
}

// dnsMatches reports whether a DNS SAN is for a host (RFC 6125, section 6.4): a wildcard has to
// be the whole left-most label, and stands for one label of a host that is a name: not an IP
// address, nor the email address or URI of a matcher that is for SANs of all types.
func dnsMatches(host, san string) bool {
	host, san = strings.ToLower(strings.TrimSuffix(host, ".")), strings.ToLower(strings.TrimSuffix(san, "."))
	if host == "" {
		return false
	}
	parent, wildcard := strings.CutPrefix(san, "*.")
	if !wildcard {
		return host == san && !strings.Contains(san, "*")
	}
	if strings.Contains(parent, "*") || parent == "" {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil || strings.ContainsAny(host, "@:/") {
		return false
	}
	label, rest, _ := strings.Cut(host, ".")
	return label != "" && rest == parent
}
