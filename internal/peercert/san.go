package peercert

import (
	"crypto/x509"
	"iter"
	"net/netip"
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

// matches reports whether a SAN fits. An empty one never does. An exact value is compared
// with a DNS name by the rules of DNS, wildcards included.
func (m *Matcher) matches(kind SANType, san string) bool {
	switch {
	case san == "" || m.Type != AnySAN && m.Type != kind:
		return false
	case kind == DNS && m.Value.Kind == matching.StringExact:
		return dnsMatches(m.Value.Value, san)
	}
	return m.Value.Matches(san)
}

// names goes through the SANs of a certificate. IP addresses are in canonical form (RFC 5952).
func names(c *x509.Certificate) iter.Seq2[SANType, string] {
	return func(yield func(SANType, string) bool) {
		for _, name := range c.DNSNames {
			if !yield(DNS, name) {
				return
			}
		}
		for _, uri := range c.URIs {
			if !yield(URI, uri.String()) {
				return
			}
		}
		for _, address := range c.EmailAddresses {
			if !yield(Email, address) {
				return
			}
		}
		for _, ip := range c.IPAddresses {
			if !yield(IP, ip.String()) {
				return
			}
		}
	}
}

// dnsMatches reports whether a DNS SAN is for a host (RFC 6125, section 6.4): a wildcard has to
// be the whole left-most label, and stands for one label of a host that is a name: not an IP
// address, nor the email address or URI of a matcher that is for SANs of all types.
func dnsMatches(host, san string) bool {
	host, san = strings.ToLower(strings.TrimSuffix(host, ".")), strings.ToLower(strings.TrimSuffix(san, "."))
	if host == "" || san == "" {
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
