package xdsresource

import (
	"slices"
	"strings"
)

// VirtualHost returns the virtual host for an authority, or nil: the one with
// that very domain, else the one with the longest matching "*suffix", else the
// longest matching "prefix*", else "*". Case does not matter. A wildcard stands
// for at least one character. A port in the authority is part of it.
//
// It may be called concurrently, and does not allocate if the authority is in
// lower case.
func (rc *RouteConfiguration) VirtualHost(authority string) *VirtualHost {
	return rc.table().find(strings.ToLower(authority))
}

// Clusters returns the clusters that the routes of all virtual hosts forward
// RPCs or their copies to, as VirtualHost.Clusters does for one.
func (rc *RouteConfiguration) Clusters() []string { return rc.table().clusters }

func (rc *RouteConfiguration) table() *domainTable {
	if rc.compiled != nil {
		return rc.compiled
	}
	return newDomainTable(rc.VirtualHosts)
}

// domainTable finds virtual hosts by authority.
type domainTable struct {
	exact    map[string]*VirtualHost
	suffixes wildcards
	prefixes wildcards
	// all is the virtual host with the domain "*", or nil.
	all      *VirtualHost
	clusters []string
}

func newDomainTable(hosts []*VirtualHost) *domainTable {
	t := &domainTable{exact: make(map[string]*VirtualHost, len(hosts))}
	var clusters nameSet
	for _, vh := range hosts {
		for _, domain := range vh.Domains {
			t.add(strings.ToLower(domain), vh)
		}
		for _, name := range vh.Clusters() {
			clusters.add(name)
		}
	}
	t.suffixes.sort()
	t.prefixes.sort()
	t.clusters = clusters.names
	return t
}

// add enters a domain in lower case that passed domainFault.
func (t *domainTable) add(domain string, vh *VirtualHost) {
	switch {
	case domain == "*":
		t.all = vh
	case strings.HasPrefix(domain, "*"):
		t.suffixes.add(domain[1:], vh)
	case strings.HasSuffix(domain, "*"):
		t.prefixes.add(domain[:len(domain)-1], vh)
	default:
		t.exact[domain] = vh
	}
}

func (t *domainTable) find(authority string) *VirtualHost {
	if vh := t.exact[authority]; vh != nil {
		return vh
	}
	for _, n := range t.suffixes.lengths {
		if n < len(authority) {
			if vh := t.suffixes.hosts[authority[len(authority)-n:]]; vh != nil {
				return vh
			}
		}
	}
	for _, n := range t.prefixes.lengths {
		if n < len(authority) {
			if vh := t.prefixes.hosts[authority[:n]]; vh != nil {
				return vh
			}
		}
	}
	return t.all
}

// wildcards are the domains with the wildcard at one end.
type wildcards struct {
	// hosts is keyed by the text beside the wildcard.
	hosts map[string]*VirtualHost
	// lengths has the distinct lengths of the keys, the longest first, so that
	// a lookup is one map access per length instead of one comparison per
	// domain.
	lengths []int
}

func (w *wildcards) add(text string, vh *VirtualHost) {
	if w.hosts == nil {
		w.hosts = make(map[string]*VirtualHost)
	}
	w.hosts[text] = vh
	w.lengths = append(w.lengths, len(text))
}

func (w *wildcards) sort() {
	slices.Sort(w.lengths)
	w.lengths = slices.Compact(w.lengths)
	slices.Reverse(w.lengths)
}

// domainFault says what is wrong with a domain, or returns "".
func domainFault(domain string) string {
	if domain == "" {
		return "must not be empty"
	}
	inner := strings.Contains(domain[1:max(1, len(domain)-1)], "*")
	both := len(domain) > 1 && domain[0] == '*' && domain[len(domain)-1] == '*'
	if inner || both {
		return quote(domain) + " must have at most one *, as its first or last character"
	}
	return ""
}
