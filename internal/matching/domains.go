package matching

import (
	"slices"
	"strings"
)

// Domains finds the number of a virtual host by authority: the one with that exact domain,
// else with the longest matching "*suffix", else "prefix*", else "*".
type Domains struct {
	exact    map[string]int
	suffixes wildcards
	prefixes wildcards
	all      int // the virtual host with the domain "*"
}

// NoHost stands for no virtual host.
const NoHost = -1

// NewDomains returns an empty Domains, with room for n.
func NewDomains(n int) *Domains { return &Domains{exact: make(map[string]int, n), all: NoHost} }

// Add adds a domain, which has no DomainFault.
func (d *Domains) Add(domain string, host int) {
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

// Find returns the virtual host for an authority, or NoHost. Case does not matter. It
// does not allocate if the authority is in lower case.
func (d *Domains) Find(authority string) int {
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
	hosts map[string]int // by the text beside the wildcard
	// lengths has the distinct lengths of the keys, ascending: a lookup is one map access per length.
	lengths []int
}

func (w *wildcards) add(text string, host int) {
	if w.hosts == nil {
		w.hosts = make(map[string]int)
	}
	w.hosts[text] = host
	if at, known := slices.BinarySearch(w.lengths, len(text)); !known {
		w.lengths = slices.Insert(w.lengths, at, len(text))
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
