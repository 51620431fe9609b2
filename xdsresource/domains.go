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
	if i := rc.table().find(strings.ToLower(authority)); i != noHost {
		return rc.VirtualHosts[i]
	}
	return nil
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

// domainTable finds virtual hosts by authority. They are numbers: the place among those
// of the RouteConfiguration.
type domainTable struct {
	*domains
	clusters []string
}

// domains is the part of a domainTable that does not depend on the routes.
type domains struct {
	exact    map[string]int
	suffixes wildcards
	prefixes wildcards
	// all is the virtual host with the domain "*".
	all int
}

// noHost stands for no virtual host.
const noHost = -1

func newDomainTable(hosts []*VirtualHost) *domainTable {
	d := &domains{exact: make(map[string]int, len(hosts)), all: noHost}
	for i, vh := range hosts {
		for _, domain := range vh.Domains {
			d.add(strings.ToLower(domain), i)
		}
	}
	d.suffixes.sort()
	d.prefixes.sort()
	return &domainTable{domains: d, clusters: clustersOfHosts(hosts)}
}

// with returns the table for virtual hosts of the same domains, made from those that t
// is for.
func (t *domainTable) with(was, hosts []*VirtualHost) *domainTable {
	for i := range hosts {
		if !sameSlice(was[i].Clusters(), hosts[i].Clusters()) {
			return &domainTable{domains: t.domains, clusters: clustersOfHosts(hosts)}
		}
	}
	return t
}

// clustersOfHosts returns the clusters of virtual hosts, each once.
func clustersOfHosts(hosts []*VirtualHost) []string {
	if len(hosts) == 1 {
		return hosts[0].Clusters()
	}
	var s nameSet
	for _, vh := range hosts {
		for _, name := range vh.Clusters() {
			s.add(name)
		}
	}
	return s.names
}

// sameSlice reports whether two slices are one.
func sameSlice(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// add enters a domain in lower case that passed domainFault.
func (d *domains) add(domain string, host int) {
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

func (d *domains) find(authority string) int {
	if host, ok := d.exact[authority]; ok {
		return host
	}
	for _, n := range d.suffixes.lengths {
		if n < len(authority) {
			if host, ok := d.suffixes.hosts[authority[len(authority)-n:]]; ok {
				return host
			}
		}
	}
	for _, n := range d.prefixes.lengths {
		if n < len(authority) {
			if host, ok := d.prefixes.hosts[authority[:n]]; ok {
				return host
			}
		}
	}
	return d.all
}

// wildcards are the domains with the wildcard at one end.
type wildcards struct {
	// hosts is keyed by the text beside the wildcard.
	hosts map[string]int
	// lengths has the distinct lengths of the keys, the longest first, so that
	// a lookup is one map access per length instead of one comparison per
	// domain.
	lengths []int
}

func (w *wildcards) add(text string, host int) {
	if w.hosts == nil {
		w.hosts = make(map[string]int)
	}
	w.hosts[text] = host
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
