package matching

import (
	"slices"
	"strings"
)

// Domains finds the number of a virtual host by authority: the one with that exact domain,
// else with the longest matching "*suffix", else "prefix*", else "*".
type Domains struct {
	exact    map[string]int32
	suffixes wildcards
	prefixes wildcards
	all      int32 // the virtual host with the domain "*"
}

// NewDomains returns an empty Domains, with room for n.
func NewDomains(n int) *Domains { return &Domains{exact: make(map[string]int32, n), all: None} }

// Add adds a domain, which has no DomainFault.
func (d *Domains) Add(domain string, host int32) {
	domain = strings.ToLower(domain)
	switch {
	case domain == "*":
		d.all = host
	case strings.HasPrefix(domain, "*"):
		d.suffixes.add(domain[1:], host)
	case strings.HasSuffix(domain, "*"):
		d.prefixes.add(domain[:len(domain)-1], host)
	default:
		d.exact[domain] = host
	}
}

// Find returns the virtual host for an authority, or None. Case does not matter. It
// does not allocate if the authority is in lower case.
func (d *Domains) Find(authority string) int32 {
	authority = strings.ToLower(authority)
	if host, ok := d.exact[authority]; ok {
		return host
	}
	for _, n := range slices.Backward(d.suffixes.lengths) {
		if n < len(authority) {
			if host, ok := d.suffixes.hosts[authority[len(authority)-n:]]; ok {
				return host
			}
		}
	}
	for _, n := range slices.Backward(d.prefixes.lengths) {
		if n < len(authority) {
			if host, ok := d.prefixes.hosts[authority[:n]]; ok {
				return host
			}
		}
	}
	return d.all
}

// wildcards are the domains with a wildcard at one end.
type wildcards struct {
	hosts   map[string]int32 // by the text beside the wildcard
	lengths lengths          // of the keys
}

func (w *wildcards) add(text string, host int32) {
	if w.hosts == nil {
		w.hosts = make(map[string]int32)
	}
	w.hosts[text] = host
	w.lengths.add(len(text))
}

// lengths are the distinct lengths of keys, ascending: what is found by a part of a text takes a map access for each length.
type lengths []int

func (l *lengths) add(n int) {
	if at, known := slices.BinarySearch(*l, n); !known {
		*l = slices.Insert(*l, at, n)
	}
}

// DomainFault describes the error of a domain, or returns "".
func DomainFault(domain string) string {
	if domain == "" {
		return "must not be empty"
	}
	inner := strings.Contains(domain[1:max(1, len(domain)-1)], "*")
	both := len(domain) > 1 && domain[0] == '*' && domain[len(domain)-1] == '*'
	if inner || both {
		return "must have at most one *, as its first or last character"
	}
	return ""
}
